"""The drafts that a model can have."""

from typing import Any

from stream_tpp.kernels.law import GapScale
from stream_tpp.model.config import ModelConfig
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.drafts.anchored import AnchoredDraft
from stream_tpp.model.drafts.early_exit import EarlyExitDraft
from stream_tpp.model.drafts.lstm import LSTMDraft
from stream_tpp.model.drafts.moe import MoEDraft
from stream_tpp.model.drafts.poisson import PoissonDraft
from stream_tpp.model.drafts.transformer import TransformerDraft
from stream_tpp.model.target import Target


def build_draft(config: ModelConfig, target: Target, scale: GapScale) -> NeuralDraft[Any]:
    """A freshly initialised draft as configured, for the given target."""
    match config.draft.kind:
        case "anchored":
            return AnchoredDraft(config.draft, config.target)
        case "lstm":
            return LSTMDraft(config.draft, config.target)
        case "transformer":
            return TransformerDraft(config.draft, config.target)
        case "moe":
            return MoEDraft(config.draft, config.target)
        case "poisson":
            return PoissonDraft(config.draft, config.target, scale)
        case "early-exit":
            return EarlyExitDraft(config.draft, config.target, target.encoder)
