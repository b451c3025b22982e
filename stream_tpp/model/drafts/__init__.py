"""The drafts that a model can have."""

from typing import Any

from stream_tpp.model.config import ModelConfig
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.drafts.anchored import AnchoredDraft


def build_draft(config: ModelConfig) -> NeuralDraft[Any]:
    """A freshly initialised draft as configured."""
    drafts = {"anchored": AnchoredDraft}
    return drafts[config.draft.kind](config.draft, config.target)
