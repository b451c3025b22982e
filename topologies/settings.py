"""Settings of a topology: defaults, then a TOML file, then the environment; the later wins.

    [topics]                                  STREAM_TPP_TOPICS_PARTITIONS=8
    partitions = 8

    [[rules]]                                 (rules come from the file alone)
    alarm = ["code_blue"]
    horizon = 3600.0
    threshold = 0.2

KAFKA_BOOTSTRAP_SERVERS is read as STREAM_TPP_KAFKA_BOOTSTRAP_SERVERS. Every time is in seconds.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Fields
from stream_tpp.topologies.connection import Connection
from stream_tpp.warning.rule import Rule

PREFIX = "STREAM_TPP_"
ALIASES = {"KAFKA_BOOTSTRAP_SERVERS": "STREAM_TPP_KAFKA_BOOTSTRAP_SERVERS"}
WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}

T = TypeVar("T")


class Section:
    """A group of settings that knows its bounds: a field's metadata may hold `least` or `choices`."""

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, setting.name)
            least, choices = setting.metadata.get("least"), setting.metadata.get("choices")
            if isinstance(value, float) and not math.isfinite(value):
                raise StreamTppError(f"The setting {setting.name} is {value!r}; it must be finite.")
            if least is not None and value < least:
                raise StreamTppError(f"The setting {setting.name} is {value!r}; it must be at least {least}.")
            if choices is not None and value not in choices:
                raise StreamTppError(f"The setting {setting.name} is {value!r}; use one of {', '.join(choices)}.")


@dataclass(frozen=True)
class Topics(Section):
    """Names of the topics, and how those that are missing are made (all with the same number of partitions)."""

    events: str = "events"
    forecasts: str = "forecasts"
    warnings: str = "warnings"
    alerts: str = "alerts"
    dead_letters: str = "dead-letters"
    partitions: int = field(default=4, metadata={"least": 1})
    replication: int = field(default=1, metadata={"least": 1})


@dataclass(frozen=True)
class Forecasts(Section):
    """What is forecast: `horizon` seconds ahead, from `paths` simulated futures, of which `futures` go on the record.

    `model` is a model folder, or the name of a model that ships with the package. Every `pick_up` seconds the worker looks
    whether there is a new model in it, and goes on with that; 0 for never.

    `draft_length` events are drafted for each pass of the model. A model as small as that of flights is quickest without any on
    a CPU (docs/sampling.md); on a GPU, or with a large model, measure: `stream-tpp doctor`.
    """

    model: str = "flights"
    horizon: float = field(default=3600.0, metadata={"least": 0.0})
    paths: int = field(default=64, metadata={"least": 1})
    draft_length: int = field(default=0, metadata={"least": 0})
    futures: int = field(default=0, metadata={"least": 0})
    pick_up: float = field(default=10.0, metadata={"least": 0.0})


@dataclass(frozen=True)
class Sampler(Section):
    """The sampler thread: a micro-batch closes at `max_batch` requests or after `max_wait` seconds. While the sampler is at
    work requests gather anyway, so to wait for more makes sense on a GPU alone, where a batch costs as much as one.

    Of `max_in_flight` events at once the outputs are awaited. With `conflate`, while more requests wait than a micro-batch
    takes, several of one entity become one: the newest, which says for which events it stands.

    `threads` is how many cores a model on the CPU may use at once. Its products are small: a second thread gains little on
    an idle machine, and on a busy one waits, spinning, for the first (measured: 20 times slower, and worse).

    What the model read of histories is kept for their next events, in `prefix_mib` of memory (2**20 bytes); 0 keeps nothing.
    """

    max_batch: int = field(default=16, metadata={"least": 1})
    max_wait: float = field(default=0.0, metadata={"least": 0.0})
    max_in_flight: int = field(default=2048, metadata={"least": 1})
    conflate: bool = True
    threads: int = field(default=1, metadata={"least": 1})
    prefix_mib: int = field(default=256, metadata={"least": 0})


@dataclass(frozen=True)
class Histories(Section):
    """Rolling histories: `window` events of each entity, events up to `grace` seconds late put in their place.

    `ahead` is how far (seconds) an event may be dated after its record was written, any where it is not set; `slack` how
    many events of an entity may be in flight, `reorder` how many others may overtake one that is late (see Ring). A change
    of window, slack or reorder begins histories anew.
    `store` is memory or rocksdb (with its files in `folder`); `max_entities` decoded histories are held at once.
    `standbys` other workers hold each history too, for the case that its worker dies.
    """

    window: int = field(default=256, metadata={"least": 1})
    slack: int = field(default=1024, metadata={"least": 2})
    reorder: int = field(default=64, metadata={"least": 0})
    grace: float = field(default=86_400.0, metadata={"least": 0.0})
    ahead: float | None = None
    max_entities: int = field(default=10_000, metadata={"least": 1})
    store: str = field(default="memory", metadata={"choices": ("memory", "rocksdb")})
    standbys: int = field(default=1, metadata={"least": 0})
    folder: Path = Path("stream-tpp-data")


@dataclass(frozen=True)
class Worker(Section):
    """How the worker reads: `application` names the consumer group, its tables and their changelogs.

    The timeouts bring a restarted worker back in 3 to 5 s; Faust's own would take about a minute. `fetch_wait` is how
    long a broker may hold a fetch that finds no record. `on_error` says what to do with a record that meets an error nobody
    foresaw: dead_letter, or stop the worker.

    `processing_guarantee`: with at_least_once, what a crashed worker had not committed is written again, byte for byte. With
    exactly_once, who reads with isolation.level=read_committed sees each id once; outputs of a partition leave in order, in
    transactions, and later for it (docs/guarantees.md). It is to be changed while no worker runs.
    """

    application: str = "stream-tpp"
    session_timeout: float = field(default=6.0, metadata={"least": 0.1})
    rebalance_timeout: float = field(default=6.0, metadata={"least": 0.1})
    heartbeat_interval: float = field(default=1.0, metadata={"least": 0.1})
    fetch_wait: float = field(default=0.5, metadata={"least": 0.001})
    offset_reset: str = field(default="earliest", metadata={"choices": ("earliest", "latest")})
    on_error: str = field(default="dead_letter", metadata={"choices": ("dead_letter", "stop")})
    processing_guarantee: str = field(default="at_least_once", metadata={"choices": ("at_least_once", "exactly_once")})


@dataclass(frozen=True)
class Web(Section):
    """Where /livez, /readyz and /metrics are served (`port` 0: a free one), unless `enabled` is false."""

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int = field(default=6066, metadata={"least": 0})


@dataclass(frozen=True)
class Settings:
    """All settings of a topology. `load` reads them; secrets never show in its text form."""

    kafka: Connection = field(default_factory=Connection)
    topics: Topics = field(default_factory=Topics)
    fields: Fields = field(default_factory=Fields)
    forecasts: Forecasts = field(default_factory=Forecasts)
    sampler: Sampler = field(default_factory=Sampler)
    histories: Histories = field(default_factory=Histories)
    worker: Worker = field(default_factory=Worker)
    web: Web = field(default_factory=Web)
    rules: tuple[Rule, ...] = ()


def load(path: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in the TOML file at `path` (None: defaults) and in `environment` (None: the process's own).

    Raises StreamTppError for a file that can't be read, an unknown section or key, and a value of the wrong type or out
    of bounds; it names the place, and never shows a secret's value.
    """
    table = _read(path)
    for name, value in _environment(os.environ if environment is None else environment).items():
        section, key = _place(name)
        held = table.setdefault(section, {})
        if isinstance(held, dict):
            held[key] = _Text(value, name)
    return _build(Settings, table, "")


@dataclass(frozen=True)
class _Text:
    """A value from the environment, where everything is text; `name` is the variable's."""

    text: str
    name: str


def _read(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise StreamTppError(f"The settings file {os.fspath(path)} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StreamTppError(f"The settings file {os.fspath(path)} is not TOML: {error}.") from error


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    aliased = {ALIASES[name]: value for name, value in environment.items() if name in ALIASES and value}
    return aliased | {name: value for name, value in environment.items() if name.startswith(PREFIX)}


def _place(name: str) -> tuple[str, str]:
    sections = {setting.name: setting for setting in dataclasses.fields(Settings) if setting.name != "rules"}
    section, _, key = name.removeprefix(PREFIX).lower().partition("_")
    hints = get_type_hints(Settings)
    if section in sections and key in get_type_hints(hints[section]):
        return section, key
    known = [f"{PREFIX}{each}_{key}".upper() for each in sections for key in get_type_hints(hints[each])]
    raise StreamTppError(f"The environment variable {name} is no setting{_meant(name, known)}")


def _build(kind: type[T], table: object, where: str) -> T:
    """The dataclass `kind` from a TOML table; `where` is the table's dotted name."""
    if not isinstance(table, dict):
        raise StreamTppError(f"The setting {where} must be a section ([{where}]), not {_name(table)}.")
    hints = get_type_hints(kind)
    for key in table:
        if key not in hints:
            raise StreamTppError(f"The setting {_dotted(where, key)} is unknown{_meant(key, hints)}")
    values = {key: _value(hints[key], value, _dotted(where, key)) for key, value in table.items()}
    try:
        return kind(**values)
    except StreamTppError as error:
        raise StreamTppError(f"In the settings, [{where}]: {error}" if where else str(error)) from error
    except TypeError:
        needed = [
            setting.name
            for setting in dataclasses.fields(kind)  # type: ignore[arg-type]
            if setting.default is setting.default_factory and setting.name not in values
        ]
        raise StreamTppError(f"The settings under [{where}] lack {', '.join(needed)}.") from None


def _value(hint: Any, value: object, where: str) -> Any:
    """`value`, from TOML or the environment, as what `hint` asks for."""
    if isinstance(value, _Text):
        return _from_text(hint, value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _build(hint, value, where)
    if get_origin(hint) in (types.UnionType, typing.Union):
        return _value(_without_none(hint), value, where)
    if get_origin(hint) in (tuple, Set):
        if not isinstance(value, list):
            raise StreamTppError(f"The setting {where} must be a list, not {_name(value)}.")
        items = [_value(get_args(hint)[0], item, f"{where}[{at}]") for at, item in enumerate(value)]
        return tuple(items) if get_origin(hint) is tuple else frozenset(items)
    if hint is float and type(value) is int:
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    # bool is an int in Python, and `partitions = true` is a mistake.
    if type(value) is not hint:
        raise StreamTppError(f"The setting {where} must be {_article(hint)}, not {_name(value)}.")
    return value


def _from_text(hint: Any, value: _Text) -> Any:
    if get_origin(hint) in (types.UnionType, typing.Union):
        hint = _without_none(hint)
    try:
        return WORDS[value.text.strip().lower()] if hint is bool else hint(value.text)
    except (KeyError, ValueError):
        raise StreamTppError(f"The environment variable {value.name} must be {_article(hint)}.") from None


def _without_none(hint: Any) -> Any:
    return next(kind for kind in get_args(hint) if kind is not type(None))


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _article(hint: Any) -> str:
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return words.get(hint, str(hint))


def _name(value: object) -> str:
    # The kind alone, not the value: it may be a secret in the wrong place.
    kinds: dict[type, str] = {dict: "a section", list: "a list"}
    return kinds.get(type(value)) or _article(type(value))


def _meant(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else "."
