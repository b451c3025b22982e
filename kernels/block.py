"""Events as tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Block:
    """Events of leading shape [...], each row a stretch of one sequence [BOS, e_1, e_2, ...].

    y float64: standardised log gap to the event before (0 for BOS). types int64: 0 .. K-1, K for BOS and for padding
    (padding is told by lengths, never by type). times float64: seconds. origin float64: the time of the row's BOS.
    """

    y: Tensor
    types: Tensor
    times: Tensor
    origin: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(change(self.y), change(self.types), change(self.times), change(self.origin))

    def followed_by(self, other: Block) -> Block:
        """Both along the last dimension."""
        return Block(
            torch.cat((self.y, other.y), -1),
            torch.cat((self.types, other.types), -1),
            torch.cat((self.times, other.times), -1),
            torch.cat((self.origin, other.origin), -1),
        )
