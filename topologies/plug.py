"""Forecasts and warnings inside a Faust app of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TypeVar

import faust
from faust.types import TopicT
from faust.types.enums import ProcessingGuarantee

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Fields
from stream_tpp.forecast import Forecaster as ModelForecaster
from stream_tpp.model.checkpoint import load
from stream_tpp.model.model import Model
from stream_tpp.operators.agents import AlertAgent, ChangelogTable, ForecastAgent, OnError
from stream_tpp.operators.alerts import Alerts, states_mark
from stream_tpp.operators.counters import Counters
from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.operators.forecasting import Forecasting
from stream_tpp.operators.histories import Histories, layout_of, slot_mark
from stream_tpp.operators.ingest import Ingest
from stream_tpp.operators.post import Post
from stream_tpp.operators.records import Channel
from stream_tpp.operators.slots import SlotTable
from stream_tpp.operators.transactions import Transactions
from stream_tpp.topologies.pick_up import Make, pick_up
from stream_tpp.topologies.restore import restore_in_bulk
from stream_tpp.topologies.transport import commit_by, settle_at_rebalance
from stream_tpp.warning.rule import Rule


@dataclass(frozen=True)
class Plugged:
    """What `plug` added to an app.

    `forecasts`, `warnings`, `alerts` (JSON records, key the entity) and `dead_letters` (raw bytes) are Faust topics to
    read on from; `histories` is the table of slots. `counters` counts; `forecast_agent` has the sampler thread and the
    outbox of what is in flight. `alert_agent` is None without rules.
    """

    events: TopicT
    histories: SlotTable
    forecasts: TopicT
    warnings: TopicT
    alerts: TopicT
    dead_letters: TopicT
    counters: Counters
    forecast_agent: ForecastAgent
    alert_agent: AlertAgent | None

    @property
    def forecaster(self) -> Forecaster:
        """What forecasts now."""
        return self.forecast_agent.sampler.forecaster


def plug(
    app: faust.App,
    *,
    events: str,
    model: str | os.PathLike[str] | Model | Forecaster,
    rules: Sequence[Rule] = (),
    horizon: float = 3600.0,
    paths: int = 64,
    make: Make | None = None,
    pick_up_every: float = 10.0,
    partitions: int | None = None,
    names: Mapping[Channel, str] | None = None,
    fields: Fields | None = None,
    max_event_bytes: int = 65536,
    ahead: float | None = None,
    grace: float = 86_400.0,
    window: int | None = None,
    slack: int = 1024,
    reorder: int = 64,
    most_rings: int = 10_000,
    max_batch: int = 16,
    max_wait: float = 0.0,
    max_in_flight: int = 2048,
    conflate: bool = True,
    on_error: OnError = "dead_letter",
    patience: float = 2.0,
    declare: bool = True,
) -> Plugged:
    """Have `app` forecast what follows the events on the topic `events`, and warn by `rules`. Call it before the app starts.

    `model` is a model folder, a model, or a forecaster; `horizon` (seconds) and `paths` are what a forecaster is made
    with, where none is given and `make` makes none of a model. Where `model` is a folder, every `pick_up_every` seconds (0:
    never) is looked whether a new one lies there, see stream_tpp.topologies.pick_up. The events topic has `partitions`
    partitions (default: the app's `topic_partitions`); so have the topics that are written, which are declared at the
    start unless `declare` is False. `names` names those that are not to be called forecasts, warnings, alerts and
    dead-letters.

    `fields` says how events are written, `ahead` and `grace` (seconds) how far their times may lie before and behind, see
    Ingest and Histories; `max_batch`, `max_wait` (seconds) and `max_in_flight` bound the sampler's work; `conflate`: one
    forecast for several events of an entity when it is behind. `on_error`: what to do with a record that meets an error
    nobody foresaw. `patience`: seconds that those in flight get when a rebalance
    begins, less than the app's `broker_rebalance_timeout`.

    Where the app's `processing_guarantee` is exactly_once, what is written for a record and the record's offset are one
    transaction, see stream_tpp.operators.transactions; what the app does besides is Faust's.

    The app gets a transport of ours (see stream_tpp.topologies.transport): around a rebalance, Faust's own loses records.

    An agent of the app's own on the events topic must read bytes too (`value_type=bytes`): where one fails to decode a
    record, Faust acknowledges it for all agents, and it becomes no dead letter.

    Raises StreamTppError: no such model, rules that name unknown types or share a name.
    """
    folder = folder_of(model) if isinstance(model, str | os.PathLike) else None
    make = make or (lambda loaded: ModelForecaster(loaded, rules, horizon=horizon, paths=paths))
    forecaster = _forecaster(load(folder) if folder else model, make)
    _check(rules, forecaster.types)
    topics = _Topics(app, partitions or app.conf.topic_partitions, declare, names or {})
    counters = Counters()
    window = window or forecaster.window
    restore_in_bulk(app)
    name = f"histories-{layout_of(window, slack, reorder, forecaster.types)}"
    histories = _table(SlotTable, app, name, topics.partitions, slot_mark)
    forecasting = Forecasting(
        Ingest(forecaster.types, fields, max_event_bytes, ahead),
        Histories(
            histories,
            window=window,
            slack=slack,
            reorder=reorder,
            grace=grace,
            most_rings=most_rings,
            stored=lambda entity: histories.stored(entity, window + reorder + slack),
        ),
        counters,
        rules,
    )
    written, post = topics.written(), Post(app)
    transactions = None
    guarantee: object = app.conf.processing_guarantee
    if guarantee is ProcessingGuarantee.EXACTLY_ONCE:
        transactions = Transactions(app, post, {events, topics.name("warnings")} if rules else {events})
        commit_by(app, transactions)
    forecast_agent = ForecastAgent(
        app,
        histories,
        written,
        post,
        forecasting,
        forecaster,
        max_batch=max_batch,
        max_wait=max_wait,
        max_in_flight=max_in_flight,
        conflate=conflate,
        on_error=on_error,
        patience=patience,
        transactions=transactions,
    )
    events_topic = topics.raw(events)
    app.agent(events_topic, name="stream-tpp-forecast")(forecast_agent.run)
    if folder and pick_up_every:
        pick_up(app, folder, make, forecast_agent.sampler, counters, pick_up_every)
    settle_at_rebalance(app, forecast_agent.settle)
    alert_agent = None
    if rules:
        states = _table(ChangelogTable, app, "standing-alerts", topics.partitions, states_mark)
        alerts = Alerts(states, rules, counters)
        alert_agent = AlertAgent(
            app,
            states,
            written,
            post,
            alerts,
            max_in_flight=max_in_flight,
            on_error=on_error,
            patience=patience,
            transactions=transactions,
        )
        app.agent(topics.raw(topics.name("warnings")), name="stream-tpp-alert")(alert_agent.run)
        settle_at_rebalance(app, alert_agent.settle)
    return Plugged(
        events=events_topic,
        histories=histories,
        **written,
        counters=counters,
        forecast_agent=forecast_agent,
        alert_agent=alert_agent,
    )


BLOCK_CACHE = 32 << 20

AnyTable = TypeVar("AnyTable", bound=ChangelogTable)

NAMES: Mapping[Channel, str] = {
    "forecasts": "forecasts",
    "warnings": "warnings",
    "alerts": "alerts",
    "dead_letters": "dead-letters",
}


@dataclass(frozen=True)
class _Topics:
    app: faust.App
    partitions: int
    # An internal topic is one that Faust declares, with the partitions it is told.
    internal: bool
    names: Mapping[Channel, str]

    def name(self, channel: Channel) -> str:
        return self.names.get(channel, NAMES[channel])

    def raw(self, name: str) -> TopicT:
        return self.app.topic(
            name,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            allow_empty=True,
            partitions=self.partitions,
            internal=self.internal,
        )

    def written(self) -> dict[Channel, TopicT]:
        json: dict[Channel, TopicT] = {
            channel: self.app.topic(
                self.name(channel),
                key_type=str,
                key_serializer="raw",
                value_serializer="json",
                partitions=self.partitions,
                internal=self.internal,
            )
            for channel in NAMES
            if channel != "dead_letters"
        }
        return json | {"dead_letters": self.raw(self.name("dead_letters"))}


def _table(kind: type[AnyTable], app: faust.App, name: str, partitions: int, mark: Callable[[bytes], int]) -> AnyTable:
    table = kind(
        app,
        name=name,
        mark=mark,
        key_type=bytes,
        value_type=bytes,
        partitions=partitions,
        # Who stands by has each write at once; Faust would collect a thousand first.
        standby_buffer_size=1,
        # RocksDB would take 2 GiB a database; the store in memory has no use for it.
        options={"block_cache_size": BLOCK_CACHE, "block_cache_compressed_size": BLOCK_CACHE // 4},
        beacon=app.tables.beacon,
    )
    app.tables.add(table)
    return table


def folder_of(place: str | os.PathLike[str]) -> Path:
    """The model folder `place`, or that of the model of this name that ships with the package."""
    shipped = Path(str(resources.files("stream_tpp"))) / "pretrained" / place
    return shipped if shipped.is_dir() and not Path(place).is_dir() else Path(place)


def _forecaster(model: object, make: Make) -> Forecaster:
    return make(model) if isinstance(model, Model) else model  # type: ignore[return-value]


def _check(rules: Sequence[Rule], types: Sequence[str]) -> None:
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise StreamTppError(f"Two rules share a name among {', '.join(names)}: name each differently.")
    for rule in rules:
        unknown = sorted(rule.alarm - set(types))
        if unknown:
            raise StreamTppError(
                f"The rule {rule.name!r} names types that the model doesn't know: {', '.join(unknown)}. It knows: "
                f"{', '.join(types)}."
            )
