from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.operators.histories import slot_key
from stream_tpp.operators.records import Source, entity_key, record_id, seed_of


def test_ids_and_seeds_are_made_of_where_an_event_lies() -> None:
    source = Source("events", 3, 17)
    assert record_id("e", source) == "e:events:3:17"
    assert seed_of("e:events:3:17") == seed_of("e:events:3:17") != seed_of("e:events:3:18")
    assert 0 <= seed_of("e:events:3:17") < 2**63


def test_the_longest_names_make_short_keys() -> None:
    assert len(slot_key(entity_key(0, "x" * 10_000), 319)) == 70


def test_names_that_differ_only_at_their_end_or_in_a_nul_have_keys_of_their_own() -> None:
    names = ["x" * 10_000, "x" * 10_001, "x" * 63, "x" * 64, "a", "a\0", "a\0\0", "\0", "é", "e\u0301"]
    keys = {entity_key(0, name) for name in names}
    assert len(keys) == len(names)


@given(st.lists(st.tuples(st.integers(0, 300), st.text(min_size=1, max_size=70), st.integers(0, 400)), unique=True))
def test_no_two_slots_share_a_key(slots: list[tuple[int, str, int]]) -> None:
    keys = sorted(slot_key(entity_key(partition, name), place) for partition, name, place in slots)
    assert all(first != second for first, second in pairwise(keys))
