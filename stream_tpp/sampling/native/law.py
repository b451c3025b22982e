"""The law of the next event, with machine code for what takes PyTorch many small steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stream_tpp.kernels.law import MixtureLaw
from stream_tpp.sampling.native.program import program


@dataclass(frozen=True)
class NativeLaw(MixtureLaw):
    """A mixture law on the CPU."""

    def quantile(self, levels: Tensor) -> Tensor:
        low = np.full(self.shape, -np.inf) if self.y_elapsed is None else self.y_elapsed.numpy()
        mixture = (part.numpy() for part in (self.log_weights, self.locs, self.log_scales))
        return torch.from_numpy(program().quantiles(levels.to(torch.float64).numpy(), low, *map(np.ascontiguousarray, mixture)))
