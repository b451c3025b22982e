"""Numbers given as options: what no computation can use is refused where it is read."""

from __future__ import annotations

import math

import click

SEED = click.IntRange(0, 2**63 - 1)
THREADS = click.IntRange(1, 256)
DRAFT_LENGTH = click.IntRange(0, 64)


class Finite(click.FloatRange):
    """A range of floats in which NaN and infinity are none: click's own lets NaN through any bounds."""

    def convert(self, value: object, parameter: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, parameter, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", parameter, ctx)
        return number


class DraftLength(click.ParamType):
    """A number of events, or the name of a policy that chooses it."""

    name = "N|POLICY"
    policies = ("acceptance", "throughput", "utilisation")

    def convert(self, value: object, parameter: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value in self.policies:
            return str(value)
        try:
            return int(DRAFT_LENGTH.convert(value, parameter, ctx))
        except click.BadParameter:
            self.fail(f"{value!r} is no number from 0 to 64, nor one of {', '.join(self.policies)}.", parameter, ctx)
