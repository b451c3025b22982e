"""Numbers given as options: what no computation can use is refused where it is read."""

from __future__ import annotations

import math

import click

SEED = click.IntRange(0, 2**63 - 1)
THREADS = click.IntRange(1, 256)


class Finite(click.FloatRange):
    """A range of floats in which NaN and infinity are none: click's own lets NaN through any bounds."""

    def convert(self, value: object, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, parameter, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", parameter, ctx)
        return number
