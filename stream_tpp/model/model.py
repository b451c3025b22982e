"""A model: vocabulary, gap scale, target and draft, as trained together and kept in one folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stream_tpp.model.config import ModelConfig
from stream_tpp.model.draft import NeuralDraft
from stream_tpp.model.drafts import build_draft
from stream_tpp.model.law import GapScale
from stream_tpp.model.target import Target


@dataclass
class Model:
    """types: the vocabulary, type k of the tensors is types[k]. window: events of history that the target was trained to read.

    facts: how it was trained and what that gave (JSON values). version: names the weights, "" before they are saved.
    """

    config: ModelConfig
    types: tuple[str, ...]
    scale: GapScale
    window: int
    target: Target
    draft: NeuralDraft[Any]
    facts: dict[str, Any] = field(default_factory=dict)
    version: str = ""

    @classmethod
    def fresh(cls, config: ModelConfig, types: tuple[str, ...], scale: GapScale, window: int) -> Model:
        """An untrained model, in evaluation mode."""
        assert len(types) == config.target.types
        target = Target(config.target).eval()
        return cls(config, types, scale, window, target, build_draft(config, target, scale).eval())
