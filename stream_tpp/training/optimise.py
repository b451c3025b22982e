"""The training loop that target and draft share: AdamW, a warm-up and a cosine, early stopping, a time limit."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stream_tpp.errors import StreamTppError
from stream_tpp.training.data import Batch

logger = logging.getLogger(__name__)

_WARM_UP = 0.05


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to learn. `patience`: epochs without a better validation loss before stopping.

    time_limit: seconds or None. A run that the limit doesn't cut short is reproducible; the learning rate falls to nothing by
    the last epoch or by the limit, whichever comes first.
    """

    epochs: int = 40
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    patience: int = 8
    time_limit: float | None = None


def optimise(
    module: nn.Module,
    epoch: Callable[[], Sequence[Batch]],
    loss: Callable[[Batch], Tensor],
    validate: Callable[[], float],
    schedule: Schedule,
    name: str,
) -> float:
    """Train `module` in place and leave it, in evaluation mode, with the weights of its best epoch; its validation loss."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    began = time.monotonic()
    best, best_weights, best_number = math.inf, copy.deepcopy(module.state_dict()), 0
    for number in range(schedule.epochs):
        module.train()
        batches = epoch()
        for done, batch in enumerate(batches):
            share = max((number + done / len(batches)) / schedule.epochs, _elapsed_share(schedule, began))
            if share >= 1.0:
                break
            for group in optimiser.param_groups:
                group["lr"] = schedule.learning_rate * _rate(share)
            optimiser.zero_grad(set_to_none=True)
            loss(batch).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
        module.eval()
        with torch.inference_mode():
            now = validate()
        logger.info("%s: epoch %d, validation loss %.4f, %.0f s", name, number + 1, now, time.monotonic() - began)
        if now < best:
            best, best_weights, best_number = now, copy.deepcopy(module.state_dict()), number
        if number - best_number >= schedule.patience or _elapsed_share(schedule, began) >= 1.0:
            break
    if not math.isfinite(best):
        raise StreamTppError(f"Training the {name} gave no finite loss: look for absurd times in the log.")
    module.load_state_dict(best_weights)
    return best


def _elapsed_share(schedule: Schedule, began: float) -> float:
    return 0.0 if schedule.time_limit is None else min(1.0, (time.monotonic() - began) / schedule.time_limit)


def _rate(share: float) -> float:
    """Linear warm-up over the first twentieth, then a cosine to nothing."""
    if share < _WARM_UP:
        return max(share, 1e-3) / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (share - _WARM_UP) / (1 - _WARM_UP)))
