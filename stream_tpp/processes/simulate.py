"""The paper's synthetic data: three processes of known law, simulated and split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.processes.hawkes import Hawkes
from stream_tpp.processes.poisson import SinusoidalPoisson
from stream_tpp.processes.process import Process
from stream_tpp.processes.sequence import EventSequence, Window

PAPER_WINDOW = Window(0.0, 100.0)
Name = Literal["poisson", "hawkes", "multivariate_hawkes"]


def paper_process(name: Name) -> Process:
    """A process of TPP-SD (arXiv 2507.09252, section 5.1), all of them on the window [0, 100].

    poisson: 5 (1 + sin(pi t / 50)). hawkes: mu 2.5, alpha 1, beta 2. multivariate_hawkes: mu 0.4, alpha [[1, .5], [.1, 1]],
    beta 2. Both Hawkes kernels are alpha exp(-beta t), so that about 500 events are expected of the first two.
    """
    match name:
        case "poisson":
            return SinusoidalPoisson(level=5.0, period=100.0)
        case "hawkes":
            return Hawkes(2.5, 1.0, 2.0)
        case "multivariate_hawkes":
            return Hawkes([0.4, 0.4], [[1.0, 0.5], [0.1, 1.0]], 2.0)
    raise StreamTppError(f"There is no process {name!r}; there are poisson, hawkes and multivariate_hawkes.")


@dataclass(frozen=True, slots=True)
class Split:
    train: list[EventSequence]
    validation: list[EventSequence]
    test: list[EventSequence]


def simulate(process: Process, sequences: int = 1000, seed: int = 0, window: Window = PAPER_WINDOW) -> Split:
    """Independent sequences from a process, split 80/10/10 in the order drawn."""
    drawn = process.thin_rows(np.random.default_rng(seed), window, sequences)
    train, validation = sequences * 8 // 10, sequences * 9 // 10
    return Split(drawn[:train], drawn[train:validation], drawn[validation:])
