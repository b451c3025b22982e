"""The early-warning topology: events in; forecasts, warnings, alerts and dead letters out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import cast

import faust
import torch

from stream_tpp.errors import StreamTppError
from stream_tpp.forecast import Forecaster as ModelForecaster
from stream_tpp.model.model import Model
from stream_tpp.operators.agents import OnError
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.topologies.plug import Plugged, plug
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.topics import Topic, changelogs, declare_at_start
from stream_tpp.topologies.transport import set_fetch_wait
from stream_tpp.topologies.web import serve_as_set
from stream_tpp.warning.rule import Rule

PRODUCER_LINGER = 0.005


def create_app(settings: Settings) -> faust.App:
    """The Faust app of this topology. Raises StreamTppError: no rules, no such model, a rule with unknown types."""
    app, plugged = create(settings)
    serve_as_set(app, plugged, settings.web)
    return app


def create(settings: Settings, forecaster: Forecaster | None = None) -> tuple[faust.App, Plugged]:
    """The app, and what it is made of; with a forecaster of one's own instead of the model in the settings."""
    if not settings.rules:
        raise StreamTppError("The early-warning topology has no rules: add [[rules]] with alarm, horizon and threshold.")
    return assemble(settings, settings.rules, settings.forecasts.futures, forecaster)


def assemble(
    settings: Settings, rules: Sequence[Rule], published: int, forecaster: Forecaster | None = None
) -> tuple[faust.App, Plugged]:
    """An app that forecasts and warns by `rules`; `published` simulated futures go on each forecast's record."""
    app = _app(settings)
    topics, histories, sampler = settings.topics, settings.histories, settings.sampler
    torch.set_num_threads(sampler.threads)
    plugged = plug(
        app,
        events=topics.events,
        model=forecaster or settings.forecasts.model,
        make=lambda model: _forecaster(model, settings, rules, published),
        pick_up_every=settings.forecasts.pick_up,
        rules=rules,
        partitions=topics.partitions,
        names={
            "forecasts": topics.forecasts,
            "warnings": topics.warnings,
            "alerts": topics.alerts,
            "dead_letters": topics.dead_letters,
        },
        fields=settings.fields,
        window=histories.window,
        slack=histories.slack,
        reorder=histories.reorder,
        grace=histories.grace,
        ahead=histories.ahead,
        most_rings=histories.max_entities,
        max_batch=sampler.max_batch,
        max_wait=sampler.max_wait,
        max_in_flight=sampler.max_in_flight,
        conflate=sampler.conflate,
        on_error=cast(OnError, settings.worker.on_error),
        # A third to finish what is in flight, the rest to join again.
        patience=settings.worker.rebalance_timeout / 3,
        declare=False,
    )
    declare_at_start(app, settings.kafka, lambda: _topics(app, settings))
    return app, plugged


def _app(settings: Settings) -> faust.App:
    worker = settings.worker
    if settings.histories.store == "rocksdb" and find_spec("rocksdict") is None:
        raise StreamTppError(
            'The store rocksdb is not installed: run `pip install "stream-tpp[rocksdb]"`, or set store = "memory" under '
            "[histories]."
        )
    app = faust.App(
        worker.application,
        autodiscover=False,
        datadir=settings.histories.folder,
        store=f"{settings.histories.store}://",
        topic_partitions=settings.topics.partitions,
        topic_replication_factor=settings.topics.replication,
        topic_disable_leader=True,
        table_standby_replicas=settings.histories.standbys,
        # What the check compares with the changelog's end is the offset persisted on disk; in memory there is none, and the
        # embedded broker's end offsets are too low.
        recovery_consistency_check=settings.histories.store != "memory",
        web_enabled=False,
        # The agents settle what is in flight, in bounded time; Faust would wait for it however long it takes.
        stream_wait_empty=False,
        processing_guarantee=worker.processing_guarantee,
        consumer_auto_offset_reset=worker.offset_reset,
        broker_session_timeout=worker.session_timeout,
        broker_rebalance_timeout=worker.rebalance_timeout,
        broker_heartbeat_interval=worker.heartbeat_interval,
        # What a killed worker had done since its last commit, the next one writes again, under the same ids.
        broker_commit_interval=1.0,
        # Three records are written for each event; a request for each of them would cost more than all else.
        producer_linger=PRODUCER_LINGER,
        **settings.kafka.faust_options(),
    )
    set_fetch_wait(app, worker.fetch_wait)
    return app


def _forecaster(model: Model, settings: Settings, rules: Sequence[Rule], published: int) -> Forecaster:
    forecasts = settings.forecasts
    return ModelForecaster(
        model,
        rules,
        horizon=forecasts.horizon,
        paths=forecasts.paths,
        published=published,
        draft_length=forecasts.draft_length,
        prefix_bytes=settings.sampler.prefix_mib << 20,
    )


def _topics(app: faust.App, settings: Settings) -> Iterator[Topic]:
    topics = settings.topics
    for name in (topics.events, topics.forecasts, topics.warnings, topics.alerts, topics.dead_letters):
        yield Topic(name, topics.partitions, topics.replication)
    yield from changelogs(app, topics.partitions, topics.replication)
