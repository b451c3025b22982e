"""Likelihoods that any user would compare a model with first. Nats per event, gaps in seconds, as for the model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_tpp.training.data import Observed


def poisson_nll(train: Sequence[Observed], test: Sequence[Observed], types: int) -> float:
    """A constant rate per type, fitted on all gaps of the training part: exponential gaps, types by frequency."""
    gaps, _ = _scored(train)
    rate = len(gaps) / max(float(gaps.sum()), 1e-300)
    tested, kinds = _scored(test)
    return float(np.mean(rate * tested - math.log(rate))) + _type_nll(train, kinds, types)


def log_normal_renewal_nll(train: Sequence[Observed], test: Sequence[Observed], types: int, floor: float) -> float:
    """Independent log-normal gaps (ties at `floor` seconds), types by frequency."""
    logs = np.log(np.maximum(_scored(train)[0], floor))
    mean, std = float(logs.mean()), max(float(logs.std()), 1e-6)
    gaps, kinds = _scored(test)
    tested = np.log(np.maximum(gaps, floor))
    nll = 0.5 * ((tested - mean) / std) ** 2 + math.log(std) + 0.5 * math.log(2 * math.pi) + tested
    return float(nll.mean()) + _type_nll(train, kinds, types)


def _scored(sequences: Sequence[Observed]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Gaps and types of the events that count; the first event of a sequence has no gap and is left out."""
    gaps, kinds = [np.empty(0)], [np.empty(0, np.int64)]
    for observed in sequences:
        first = max(observed.scored_from, 1)
        gaps.append(np.diff(observed.history.times)[first - 1 :])
        kinds.append(observed.history.types[first:])
    return np.concatenate(gaps), np.concatenate(kinds)


def _type_nll(train: Sequence[Observed], kinds: NDArray[np.int64], types: int) -> float:
    counts = np.bincount(np.concatenate([observed.history.types for observed in train]), minlength=types)
    return float(-np.log(counts / counts.sum())[kinds].mean())
