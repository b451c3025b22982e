"""The encoders that a target can have."""

from stream_tpp.model.config import TargetConfig
from stream_tpp.model.encoder import Encoder
from stream_tpp.model.encoders.attnhp import AttnHP
from stream_tpp.model.encoders.sahp import SAHP
from stream_tpp.model.encoders.thp import THP


def build_encoder(config: TargetConfig) -> Encoder:
    """A freshly initialised encoder as configured."""
    encoders: dict[str, type[THP] | type[SAHP] | type[AttnHP]] = {"thp": THP, "sahp": SAHP, "attnhp": AttnHP}
    return encoders[config.encoder](config)
