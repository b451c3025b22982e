"""A model's samples held against the process that its training data came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stream_tpp.errors import StreamTppError
from stream_tpp.evaluation.fidelity import LikelihoodDifference, Rescaling, likelihood_difference, time_rescaling
from stream_tpp.evaluation.own_law import judge
from stream_tpp.evaluation.prompts import Prompt
from stream_tpp.evaluation.sampled import Sampled, Sampler, sample_paths
from stream_tpp.history import History
from stream_tpp.processes import EventSequence, Process, Window

if TYPE_CHECKING:
    from stream_tpp.model.model import Model


@dataclass(frozen=True, slots=True)
class AgainstTruth:
    """The paper's D_KS, of all types together and of each, and its delta L, of sequences that one sampler drew."""

    rescaling: Rescaling
    by_type: tuple[Rescaling, ...]
    likelihood: LikelihoodDifference


def against_truth(model: Model, process: Process, window: Window, sampler: Sampler, sequences: int, seed: int) -> AgainstTruth:
    """Draw whole sequences on the process's window, nothing known before it, and compare with the process.

    The model's types must be named 0 .. K-1, by the process's numbers. Raises StreamTppError where they are not.
    """
    numbers = _numbers(model.types, process.num_types)
    prompts = [Prompt(History(start=window.start), window.start)] * sequences
    sampled = sample_paths(model, prompts, window.length, 1, sampler, seed)
    drawn = _sequences(sampled, numbers, window)
    likelihoods = judge(model, prompts, sampled.paths, sampled.complete).log_likelihood
    return AgainstTruth(
        time_rescaling(drawn, process),
        tuple(time_rescaling(drawn, process, number) for number in range(process.num_types)),
        likelihood_difference(drawn, likelihoods, process),
    )


def _numbers(types: Sequence[str], count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    if sorted(types) != sorted(str(number) for number in range(count)):
        raise StreamTppError(
            f"The model's types are {', '.join(types)}; the process has the types 0 to {count - 1}: it was trained on other data."
        )
    return np.array([int(name) for name in types], dtype=np.int64)


def _sequences(sampled: Sampled, numbers: np.ndarray[tuple[int], np.dtype[np.int64]], window: Window) -> list[EventSequence]:
    if not sampled.complete.all():
        raise StreamTppError("The model's sequences are far longer than the process's: it has not learned its rate.")
    paths = sampled.paths
    cuts = np.searchsorted(paths.path, np.arange(len(paths) + 1))
    return [EventSequence(window.start + paths.leads[a:b], numbers[paths.types[a:b]], window) for a, b in pairwise(cuts)]
