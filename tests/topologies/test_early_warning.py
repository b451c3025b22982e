"""The app factories: from settings to an app that declares what it needs."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.kernels.law import GapScale
from stream_tpp.model.checkpoint import save
from stream_tpp.model.config import DraftConfig, ModelConfig, TargetConfig
from stream_tpp.model.model import Model
from stream_tpp.operators.outbox import EagerOutbox, Outbox, TransactionalOutbox
from stream_tpp.topologies import early_warning, simulate
from stream_tpp.topologies.settings import Forecasts, Sampler, Settings, Topics
from stream_tpp.warning.rule import Rule


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    torch.manual_seed(0)
    target = TargetConfig(2, layers=1, d_model=8, heads=1, feedforward=8, components=2)
    config = ModelConfig(target, DraftConfig(d_model=8, components=2))
    save(Model.fresh(config, ("late", "cancelled"), GapScale(4.0, 0.5, 1e-3), window=16), tmp_path)
    return Settings(
        forecasts=Forecasts(model=str(tmp_path), horizon=600.0, paths=5, futures=2),
        sampler=Sampler(prefix_mib=3),
        topics=Topics(events="flights", alerts="calls", partitions=3),
        rules=(Rule({"cancelled"}, 600, 0.2),),
    )


def test_early_warning_without_a_rule_is_refused(settings: Settings) -> None:
    with pytest.raises(StreamTppError, match=r"has no rules: add \[\[rules\]\]"):
        early_warning.create_app(replace(settings, rules=()))


@pytest.mark.parametrize(("guarantee", "outbox"), [("at_least_once", EagerOutbox), ("exactly_once", TransactionalOutbox)])
def test_the_guarantee_is_a_setting(settings: Settings, guarantee: str, outbox: type[Outbox]) -> None:
    app, tpp = early_warning.create(replace(settings, worker=replace(settings.worker, processing_guarantee=guarantee)))
    assert app.conf.processing_guarantee.value == guarantee
    assert tpp.alert_agent is not None
    assert isinstance(tpp.forecast_agent.outbox, outbox)
    assert isinstance(tpp.alert_agent.outbox, outbox)


def test_a_store_that_is_not_installed_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    on_disk = replace(settings, histories=replace(settings.histories, store="rocksdb"))
    with pytest.raises(StreamTppError, match=r'rocksdb is not installed: run `pip install "stream-tpp\[rocksdb\]"`'):
        early_warning.create_app(on_disk)


def test_a_model_that_is_not_there_is_refused(settings: Settings) -> None:
    with pytest.raises(StreamTppError, match="no model"):
        early_warning.create_app(replace(settings, forecasts=Forecasts(model="no-such-model")))


def test_every_topic_is_declared_changelogs_included(settings: Settings) -> None:
    settings = replace(settings, topics=replace(settings.topics, replication=2))
    app, tpp = early_warning.create(settings)
    topics = list(early_warning._topics(app, settings))
    changelogs = {table.changelog_topic_name for table in app.tables.values()}
    assert len(changelogs) == 2
    assert {topic.name for topic in topics} == {"flights", "forecasts", "warnings", "calls", "dead-letters"} | changelogs
    assert {(topic.partitions, topic.replication) for topic in topics} == {(3, 2)}
    assert tpp.alerts.get_topic_name() == "calls"


def test_the_forecaster_is_made_as_the_settings_say(settings: Settings) -> None:
    forecaster = early_warning.create(settings)[1].forecaster
    assert (forecaster.horizon, forecaster.paths, forecaster.types) == (600.0, 5, ("late", "cancelled"))
    assert forecaster.published == 2  # type: ignore[attr-defined]
    assert forecaster.prefixes.most_bytes == 3 * 2**20  # type: ignore[attr-defined]


def test_simulate_publishes_all_futures_and_warns_of_nothing(settings: Settings) -> None:
    _, some = simulate.create(settings)
    assert some.forecaster.published == 2  # type: ignore[attr-defined]
    _, tpp = simulate.create(replace(settings, forecasts=replace(settings.forecasts, futures=0)))
    assert tpp.forecaster.published == 5  # type: ignore[attr-defined]
    assert tpp.forecaster.rules == ()  # type: ignore[attr-defined]
    assert tpp.alert_agent is None


def test_without_web_or_files_of_its_own_nothing_is_opened_by_making_an_app(settings: Settings) -> None:
    app = early_warning.create_app(settings)
    assert not app.conf.web_enabled
    assert not settings.histories.folder.exists()


def test_errors_redelivery_and_clocks_are_handled_as_the_settings_say(settings: Settings) -> None:
    of_histories = replace(settings.histories, slack=5, ahead=60.0)
    of_worker = replace(settings.worker, on_error="stop", rebalance_timeout=9.0)
    _, tpp = early_warning.create(replace(settings, histories=of_histories, worker=of_worker))
    forecasting = tpp.forecast_agent.forecasting
    assert (forecasting.histories.slack, forecasting.ingest.ahead) == (5, 60.0)
    assert (tpp.forecast_agent.on_error, tpp.forecast_agent.patience) == ("stop", 3.0)
