"""The shape of a model: everything that is needed to build it before its weights are read."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from stream_tpp.errors import StreamTppError

EncoderName = Literal["thp", "sahp", "attnhp"]
TimeEncoding = Literal["sinusoidal", "time2vec"]
HeadName = Literal["mixture", "binned"]
Spacing = Literal["quantile", "width"]
DraftName = Literal["anchored", "lstm", "transformer", "moe", "poisson", "early-exit"]


@dataclass(frozen=True)
class TargetConfig:
    """A target over `types` event types. The paper's is layers=20, heads=8, d_model=64, components=64.

    time_scale: seconds that count as 1 in the temporal encodings, about the mean gap. cycles: periods in seconds (a day, a week)
    whose phase the model sees; a harmonic is a cycle of its own. A mixture head has `components`; a binned one has `bins` joint
    tokens for each type, cut at quantiles of the gaps or at equal widths of their logs (`spacing`).
    """

    types: int
    encoder: EncoderName = "thp"
    layers: int = 4
    heads: int = 4
    d_model: int = 64
    feedforward: int = 256
    components: int = 16
    time_encoding: TimeEncoding = "sinusoidal"
    time_scale: float = 1.0
    cycles: tuple[float, ...] = ()
    dropout: float = 0.0
    head: HeadName = "mixture"
    bins: int = 100
    spacing: Spacing = "quantile"

    def __post_init__(self) -> None:
        _one_of("encoder", self.encoder, get_args(EncoderName))
        _one_of("time encoding", self.time_encoding, get_args(TimeEncoding))
        _one_of("head", self.head, get_args(HeadName))
        _one_of("spacing", self.spacing, get_args(Spacing))
        _at_least_one(self, "types", "layers", "heads", "d_model", "feedforward", "components", "bins")
        if self.d_model % (2 * self.heads):
            raise StreamTppError(f"d_model {self.d_model} is not a multiple of twice the {self.heads} heads: change one of them.")
        if self.encoder == "sahp" and self.time_encoding != "sinusoidal":
            raise StreamTppError("SAHP brings its own time-shifted encoding: leave the time encoding at sinusoidal.")
        if not self.time_scale > 0 or not all(cycle > 0 for cycle in self.cycles):
            raise StreamTppError("The time scale and every cycle of a model must be positive numbers of seconds.")


@dataclass(frozen=True)
class DraftConfig:
    """A draft for some target. `layers`, `heads` and `experts` matter to the kinds of draft that have them.

    `components` likewise: an anchored draft's mixture has as many as its target's.
    """

    kind: DraftName = "anchored"
    d_model: int = 64
    components: int = 16
    layers: int = 1
    heads: int = 1
    experts: int = 4

    def __post_init__(self) -> None:
        _one_of("draft", self.kind, get_args(DraftName))
        _at_least_one(self, "d_model", "components", "layers", "heads", "experts")


@dataclass(frozen=True)
class ModelConfig:
    """Target and draft of one model."""

    target: TargetConfig
    draft: DraftConfig = field(default_factory=DraftConfig)


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise StreamTppError(f"Unknown {what} {value!r}: choose one of {', '.join(allowed)}.")


def _at_least_one(config: TargetConfig | DraftConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise StreamTppError(f"A model's {name} must be at least 1, not {getattr(config, name)}.")
