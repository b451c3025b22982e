"""Dead letters: records that could not be processed, with the reason, kept for whoever mends them."""

from __future__ import annotations

from stream_tpp.operators.records import Output, Record

LARGEST_VALUE = 950_000
LONGEST_DETAIL = 1_000


def dead_letter(record: Record, reason: str, detail: str) -> Output:
    """The dead letter of `record`: its key and value as they were, and where and why in the headers.

    A value too large for a producer's request of 1 MB (it was near the broker's limit) is cut, and the header
    `truncated` says how many bytes it had. Kafka clients write no record without key and value: what had neither gets an
    empty value, and its reason (tombstone) tells.
    """
    source = record.source
    headers = {
        "reason": reason.encode(),
        "detail": detail[:LONGEST_DETAIL].encode(errors="replace"),
        "topic": source.topic.encode(),
        "partition": b"%d" % source.partition,
        "offset": b"%d" % source.offset,
        "timestamp": repr(record.timestamp).encode(),
    }
    key, value = record.key, record.value
    room = LARGEST_VALUE - len(key or b"")
    if value is not None and len(value) > room:
        headers["truncated"] = b"%d" % len(value)
        value = value[: max(room, 0)]
    if key is None and value is None:
        value = b""
    return Output("dead_letters", key, value, headers)
