"""The mixture-of-experts draft: the anchored cell, whose output goes through the two experts that a gate picks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from stream_tpp.model.config import DraftConfig, TargetConfig
from stream_tpp.model.drafts.anchored import AnchoredDraft

_ACTIVE = 2


class MoEDraft(AnchoredDraft):
    """Shazeer et al. 2017 (arXiv 1701.06538), without noise: regimes such as bursts and lulls get experts of their own."""

    def __init__(self, config: DraftConfig, target: TargetConfig) -> None:
        super().__init__(config, target)
        self.experts = Experts(config.d_model, config.experts)

    def foreseen(self, state: Tensor) -> Tensor:
        return super().foreseen(self.experts(state))


class Experts(nn.Module):
    """x + the gated sum of the outputs of the best two of E experts, each one hidden layer. [..., D] -> [..., D].

    All experts are computed and most get weight 0: for the few rows of a draft's step that is one product, not many.
    """

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.active = min(_ACTIVE, experts)
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, experts)
        self.hidden = nn.Linear(width, experts * width)
        self.out = nn.Parameter(torch.randn(experts, width, width) * width**-0.5 * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm(x)
        best, index = self.gate(normed).topk(self.active, -1)
        weights = torch.zeros(*x.shape[:-1], len(self.out), device=x.device, dtype=x.dtype)
        weights = weights.scatter(-1, index, best.softmax(-1))
        hidden = torch.relu(self.hidden(normed)).reshape(*weights.shape, -1)
        return x + torch.einsum("...ed,edf->...f", hidden * weights[..., None], self.out)
