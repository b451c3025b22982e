"""Models that come with the package: folders that `stream_tpp.load` reads, whose model.json names the command that made them."""

from pathlib import Path

FLIGHTS = Path(__file__).parent / "flights"
