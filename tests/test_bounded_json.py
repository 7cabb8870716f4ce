"""JSON becomes what ``json.loads`` makes of it, or an error that says why, within a bound on memory."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenspace import bounded_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_json_s_whether_counted_or_not(value, ascii, indent):
    text = json.dumps(value, ensure_ascii=ascii, indent=indent).encode("utf-8", "surrogatepass")
    small = bounded_json.SMALL
    try:
        bounded_json.SMALL = -1
        assert bounded_json.parse(text) == value
    finally:
        bounded_json.SMALL = small


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b'{"\xc3\xa9":}', "at byte 6: Expecting value"),
        (b'{"\xff":1}', "not UTF-8 at byte 2"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 100_000, "nested deeper"),
        (b"9" * 5000, "thousands of digits"),
        (b"[" + b"[]," * 20_000_000 + b"1]", "more than"),
        (b"[" + b"{}," * 8_000_000 + b"1]", "more than"),
        (b"[" + b"1," * 8_000_000 + b"1]", "more than"),
        (b"[" + b'"ab",' * 3_000_000 + b"1]", "more than"),
        (b'[{"a":1},' * 3_000_000, "more than"),
    ],
)
def test_what_is_no_json_or_too_large_is_refused(text, says):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=says) as caught:
            bounded_json.parse(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(text) + 32e6
    assert len(str(caught.value)) < 200


def test_separators_and_quotes_within_strings_are_not_counted(monkeypatch):
    monkeypatch.setattr(bounded_json, "FREE", 0)
    monkeypatch.setattr(bounded_json, "_BLOCK", 7)
    for text in ("[{,:" * 600_000, '\\"[,' * 600_000, "\\\\" * 900_000, "é,[" * 600_000):
        whole = json.dumps({"a": text}, ensure_ascii=False).encode()
        monkeypatch.setattr(bounded_json, "_BLOCK", 1 << 17)
        assert bounded_json.parse(whole, 6) == {"a": text}
    with pytest.raises(bounded_json.TooLargeError):
        bounded_json.parse(json.dumps([1] * 900_000).encode(), 6)


def test_a_byte_order_mark_is_no_fault():
    assert bounded_json.parse(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
