import collections
import io
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_tpp.errors import StreamTppError
from stream_tpp.logs.plain_pickle import load_plain

PATH = Path("log.pkl")
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def load(raw: bytes) -> object:
    return load_plain(io.BytesIO(raw), PATH)


def refused(raw: bytes) -> str:
    with pytest.raises(StreamTppError) as caught:
        load(raw)
    return str(caught.value)


class Calls:
    """Asks for a call when unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_plain_data_reads_as_pickle_itself_would(protocol: int) -> None:
    shared = [1.5, "\u00e9\u20ac", b"\x00\xff", None, True, -3, 10**30]
    data = {"a": [shared, shared], "b": (1, (), (1, 2, 3, 4)), 7: {"nested": [[[]]]}, "long": list(range(2000))}
    assert load(pickle.dumps(data, protocol)) == data


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "i1", "<i4", ">i8", "u2", "?"])
def test_numpy_numbers_and_arrays_are_rebuilt(protocol: int, dtype: str) -> None:
    array = np.array([[0, 1, 2], [3, 4, 5]], dtype)
    data = {"scalar": array[1, 1], "row": array[0], "array": array, "fortran": np.asfortranarray(array), "none": array[:0, 0]}
    expected = {name: value.tolist() for name, value in data.items()}
    assert load(pickle.dumps(data, protocol)) == expected


def test_strings_of_python_2_are_read() -> None:
    assert load(b"(dp0\nS'train'\np1\n(lp2\nI1\nas.") == {"train": [1]}
    assert load(b"\x80\x02U\x02\xe9\xff.") == "\xe9\xff"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_call_that_a_pickle_asks_for_is_made(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "called"
    name = os.system.__module__
    assert f"{name}.system, which is never run" in refused(pickle.dumps([Calls(os.system, f"touch {mark}")], protocol))
    assert "builtins" in refused(pickle.dumps(Calls(eval, "1"), protocol)).replace("__builtin__", "builtins")
    assert ".call, which is never run" in refused(pickle.dumps(Calls(subprocess.call, ["touch", str(mark)]), protocol))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (collections.OrderedDict(a=1), "collections.OrderedDict"),
        (Path("x"), "pathlib."),
        ({1, 2}, "the opcode EMPTY_SET"),
        (np.array([{}], object), "NumPy data of type 'O8'"),
        (np.array(["text"]), "NumPy data of type 'U4'"),
        (np.array([(1, 2)], "i4,i4"), "NumPy data of type 'V8'"),
        ({(1, 2): 3}, "a dict with containers for keys"),
    ],
)
def test_what_is_not_plain_is_named(data: Any, found: str) -> None:
    assert found in refused(pickle.dumps(data))


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (b"(S'touch x'\nios\nsystem\n.", "the opcode INST"),
        (b"cos\nsystem\n.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"\x80\x02\x82\x01.", "the opcode EXT1"),
        (b"Pname\n.", "the opcode PERSID"),
        (b"N)R.", "a call of NoneType"),
        (b"cnumpy\nndarray\n)\x81.", "the opcode NEWOBJ"),
        (b"cnumpy\nndarray\n)R.", "a call of numpy.ndarray"),
        (b"]}b.", "state set on list"),
        (b"c_codecs\nencode\n(S'x'\nS'rot13'\ntR.", "text encoded as rot13"),
    ],
)
def test_opcodes_beyond_plain_data_are_named(raw: bytes, found: str) -> None:
    assert f"asks for {found}" in refused(raw)


@pytest.mark.parametrize("raw", [b"", b"\x80\x04", b"a.", b"t.", b".", b"h\x07.", b"\xff.", b"]\x85", b"not a pickle"])
def test_a_damaged_pickle_is_said_so(raw: bytes) -> None:
    assert "is no complete pickle" in refused(raw)


def test_an_array_whose_bytes_do_not_fit_its_shape_is_refused() -> None:
    array = np.arange(6, dtype="<i4")
    wrong = pickle.dumps(array, 2).replace(b"K\x06\x85", b"K\x07\x85")
    assert "shape (7,) with 24 bytes" in refused(wrong)


def test_tuples_nested_without_end_do_no_harm() -> None:
    deep = b")" + b"\x85" * 200_000
    assert isinstance(load(deep + b"."), tuple)
    assert "containers for keys" in refused(b"}" + deep + b"Ns.")


@given(
    st.binary(max_size=200),
    st.sampled_from([pickle.dumps({"train": [[{"t": np.float64(1), "a": np.arange(3)}]]}, n) for n in PROTOCOLS]),
    st.integers(0, 400),
)
def test_any_bytes_read_as_plain_data_or_end_in_a_sentence(noise: bytes, pickled: bytes, at: int) -> None:
    for raw in (noise, pickled[:at] + noise + pickled[at + len(noise) :]):
        try:
            load(raw)
        except StreamTppError as error:
            assert str(error).startswith("log.pkl is")  # noqa: PT017
