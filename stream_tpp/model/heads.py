"""From hidden states to the law of the next event."""

import torch
from torch import Tensor, nn

from stream_tpp.kernels.law import MixtureLaw
from stream_tpp.model.binned import BinnedHead
from stream_tpp.model.config import TargetConfig

_LOG_SCALE_LOW, _LOG_SCALE_HIGH = -5.0, 3.0


class MixtureHead(nn.Module):
    """Log-normal mixture for the gap, softmax MLP for the type, independent given the history (TPP-SD, section 4.1).

    e = E h in R^3D, three slices: log weights V_w e1 + b_w, locations V_m e2 + b_m, log scales V_s e3 + b_s.
    """

    def __init__(self, width: int, components: int, types: int) -> None:
        super().__init__()
        self.sizes = (components, components, components, types)
        self.slices = nn.Linear(width, 3 * width, bias=False)
        self.weights = nn.Linear(width, components)
        self.locs = nn.Linear(width, components)
        self.log_scales = nn.Linear(width, components)
        self.types = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, types))
        # Components start side by side over the bulk of y (mean 0, standard deviation 1), not all on one spot.
        with torch.no_grad():
            self.locs.bias.copy_(torch.linspace(-2.0, 2.0, components) if components > 1 else torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        """Raw outputs [..., 3 M + K] (weights, locations, log scales, types) of hidden states [..., D]."""
        for_weights, for_locs, for_scales = self.slices(hidden).chunk(3, -1)
        parts = (self.weights(for_weights), self.locs(for_locs), self.log_scales(for_scales), self.types(hidden))
        return torch.cat(parts, -1)

    def law(self, raw: Tensor) -> MixtureLaw:
        """The law [...] that raw outputs [..., 3 M + K] stand for. Log scales are clamped to [-5, 3], gradients pass."""
        weights, locs, log_scales, types = raw.split_with_sizes(self.sizes, -1)
        clamped = log_scales.clamp(_LOG_SCALE_LOW, _LOG_SCALE_HIGH)
        if log_scales.requires_grad:
            clamped = log_scales + (clamped - log_scales).detach()
        return MixtureLaw.from_logits(weights, locs, clamped, types)


Head = MixtureHead | BinnedHead


def build_head(target: TargetConfig, width: int, components: int) -> Head:
    """A head for hidden states [..., width] of the target's kind, so that a draft's law is of the same kind as the target's."""
    if target.head == "binned":
        return BinnedHead(width, target.bins, target.types)
    return MixtureHead(width, components, target.types)
