"""Numbers that are parsed all at once are, bit for bit, what ``float`` makes of each."""

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspace.formats import decimals

PLAIN = re.compile(rb"-?(\d+\.?\d*|\.\d+)")  # what can be plain; 17 characters and 2^53 are further bounds


def parsed(fields: list[bytes]) -> tuple[list[float], list[bool]]:
    text = np.frombuffer(b"#" * decimals.WINDOW + b" ".join(fields) + b" ", np.uint8)
    lengths = np.array([len(field) for field in fields], np.int64)
    ends = np.cumsum(lengths + 1) - 1 + decimals.WINDOW
    values, plain = decimals.parse(text, ends - lengths, ends)
    return values.tolist(), plain.tolist()


def check(fields: list[bytes]) -> list[bool]:
    """Every number that is said to be plain is one, and is ``float``'s; no other is left out but the long."""
    values, plain = parsed(fields)
    for field, value, is_plain in zip(fields, values, plain, strict=True):
        digits = field.lstrip(b"-").replace(b".", b"")
        short = PLAIN.fullmatch(field) and len(field.lstrip(b"-")) <= 16 and int(digits) <= 1 << 53
        assert is_plain == bool(short), field
        if is_plain:
            assert float(field).hex() == value.hex(), field
    return plain


@pytest.mark.parametrize(
    "field",
    [
        b"0",
        b"-0",
        b"-0.0",
        b"5",
        b"5.",
        b".5",
        b"-.5",
        b"-5.",
        b"007.50",
        b"0.0000000000001",
        b"12345678",
        b"123456789",
        b"1234567.8",
        b"12345678.9",
        b"0.12345678",
        b"0.1234567",
        b"-99999999.9999999"[:17],
        b"9007199254740992",
        b"900719925474099.2",
        b".900719925474099",
        b"000000000000000.",
        b".000000000000001",
        b"1.00000011920929",
        b"0.33333333333333",
        b"8.5899346",
    ],
)
def test_a_plain_number_is_the_nearest_float64(field):
    assert check([field]) == [len(field.lstrip(b"-")) <= 16]


@pytest.mark.parametrize(
    "field",
    [
        *(
            b"",
            b"-",
            b".",
            b"-.",
            b"--1",
            b"+1",
            b"1-",
            b"1e5",
            b"1E5",
            b"1.5e-05",
            b"1_0",
            b"1..2",
            b"1.2.3",
        ),
        *(
            b"nan",
            b"inf",
            b"-inf",
            b"0x1p3",
            b"1,5",
            b"1/5",
            b"1:5",
            b"1;5",
            b"\t1",
            b"1\r",
            b"1\x00",
            b"\xb21",
        ),
        *(
            b"1.2.312345678",
            b".1.2.312345678",
            b"12345678.12345678.",
            b".1234567.1234567",
            b"9007199254740993",
            b"900719925474099.3",
        ),
        *(
            b"\xb21",
            b"12345678901234567",
            b"0.000000000000001",
            b"-0.00000000000000010",
            b"1\xa0",
            b"\xff\xff\xff\xff",
        ),
    ],
)
def test_whatever_else_is_left_to_others(field):
    assert check([field, b"1.5"]) == [False, True]


def test_what_stands_before_a_number_is_no_part_of_it():
    text = np.frombuffer(b"9" * 40, np.uint8)
    ends = np.arange(decimals.WINDOW, 40)
    for length in range(1, 16):
        values, plain = decimals.parse(text, ends - length, ends)
        assert plain.all()
        assert set(values.tolist()) == {float("9" * length)}


def test_every_character_in_every_place():
    for size in (1, 7, 8, 9, 16):
        for place in range(size):
            fields = [b"1" * place + bytes([c]) + b"1" * (size - 1 - place) for c in range(256)]
            check(fields)


def test_numbers_as_programs_write_them():
    draw = random.Random(1)
    fields = []
    for _ in range(30_000):
        number = draw.gauss(0, 1) * 10.0 ** draw.randint(-6, 6)
        fields.append(f"{number:.{draw.randint(0, 15)}f}".encode())
        fields.append(str(np.float32(number)).encode())
    assert np.mean(check(fields)) > 0.8


def test_numbers_halfway_between_two_floats():
    """Where one wrong bit of the product would show: decimals near the middle of two float64."""
    draw = random.Random(2)
    fields = []
    for _ in range(20_000):
        digits = draw.randint(1 << 52, (1 << 53) + 9)
        text = str(digits)
        cut = draw.randint(0, len(text))
        fields.append(f"{text[:cut]}.{text[cut:]}".encode()[: draw.choice([15, 16])])
    check(fields)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.from_regex(rb"-?[0-9]{0,9}\.?[0-9]{0,9}", fullmatch=True), min_size=1, max_size=20))
def test_any_number_equals_floats(fields):
    check(fields)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20))
def test_any_bytes_are_a_number_or_are_not_plain(fields):
    check(fields)


def test_no_numbers_at_all():
    nothing = np.empty(0, np.int64)
    values, plain = decimals.parse(np.zeros(decimals.WINDOW, np.uint8), nothing, nothing)
    assert values.size == plain.size == 0
