"""The demo's run, as far as it needs no broker."""

from pathlib import Path

from stream_tpp.cli.demo_run import toml
from stream_tpp.topologies.settings import Settings, load
from stream_tpp.warning.rule import Rule


def test_the_worker_reads_the_settings_that_the_demo_wrote(tmp_path: Path) -> None:
    settings = Settings(rules=(Rule({"late", "cancelled"}, horizon=86_400, threshold=0.2), Rule({"late"}, 60, 0.5, name="é")))
    (tmp_path / "settings.toml").write_text(toml(settings), encoding="utf-8")
    assert load(tmp_path / "settings.toml", {}) == settings
