import gzip
from pathlib import Path
from typing import Any

import pytest

from stream_tpp.errors import StreamTppError
from stream_tpp.event import Event, Fields
from stream_tpp.logs import read_log

LOG = """<?xml version="1.0" encoding="UTF-8"?>
<log xes.version="1.0" xmlns="http://www.xes-standard.org/">
  <extension name="Concept" prefix="concept" uri="http://www.xes-standard.org/concept.xesext"/>
  <global scope="event"><string key="concept:name" value="name"/></global>
  <classifier name="Activity" keys="concept:name"/>
  <string key="concept:name" value="the log"/>
  <trace>
    <string key="concept:name" value="A &amp; B"><string key="concept:name" value="meta"/></string>
    <event>
      <string key="concept:name" value="register"/>
      <date key="time:timestamp" value="2013-01-01T02:00:00.500+02:00"/>
      <string key="org:resource" value="ann"/>
      <list key="items"><values><string key="concept:name" value="inner"/></values></list>
      <id key="identity:id" value="u-1"/>
    </event>
    <event>
      <date key="time:timestamp" value="2013-01-01T00:00:01Z"/>
      <string key="concept:name" value="release"/>
      <string key="org:resource" value="bob"/>
    </event>
  </trace>
  <trace><string key="concept:name" value="empty"/></trace>
</log>
"""


def read(folder: Path, text: str, **fields: Any) -> list[Event]:
    path = folder / "log.xes"
    path.write_text(text)
    return list(read_log(path, Fields(**fields)))


def test_traces_are_entities_and_their_events_keep_their_order(tmp_path: Path) -> None:
    expected = [Event("A & B", 1356998400.5, "register", "u-1"), Event("A & B", 1356998401.0, "release")]
    assert read(tmp_path, LOG) == expected
    packed = tmp_path / "log.xes.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    assert list(read_log(packed)) == expected


def test_other_attributes_can_be_named(tmp_path: Path) -> None:
    assert [event.type for event in read(tmp_path, LOG, type="org:resource")] == ["ann", "bob"]


def test_a_long_log_is_read_as_a_stream(tmp_path: Path) -> None:
    start, end = LOG.index("  <trace>"), LOG.index("  <trace><string")
    events = read(tmp_path, LOG[:start] + LOG[start:end] * 300 + LOG[end:])
    assert len(events) == 600


@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE log [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE log [<!ENTITY x SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE log SYSTEM "http://127.0.0.1/log.dtd">',
    ],
)
def test_a_document_type_is_refused_before_any_entity_expands(tmp_path: Path, doctype: str) -> None:
    with pytest.raises(StreamTppError, match=r"log\.xes declares a document type \(DOCTYPE\)"):
        read(tmp_path, LOG.replace("<log", f"{doctype}\n<log", 1))


def test_what_is_not_xml_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(StreamTppError, match=r"log\.xes, line 22: it is not XML: "):
        read(tmp_path, LOG[: LOG.index("  <trace><string")])
    with pytest.raises(StreamTppError, match=r"log\.xes, line 1: it is not XML: "):
        read(tmp_path, "entity,time\n")


@pytest.mark.parametrize(
    ("removed", "sentence"),
    [
        ('<string key="concept:name" value="register"/>', "line 9: The record has no type"),
        ('<date key="time:timestamp" value="2013-01-01T00:00:01Z"/>', "line 16: The record has no time"),
        ('<string key="concept:name" value="A &amp; B"><string key="concept:name" value="meta"/></string>', "no entity"),
    ],
)
def test_a_bad_event_is_named_by_its_line(tmp_path: Path, removed: str, sentence: str) -> None:
    assert removed in LOG
    with pytest.raises(StreamTppError) as caught:
        read(tmp_path, LOG.replace(removed, ""))
    assert sentence in str(caught.value)
