"""Words to numbers: what Python's own split and dict give, whatever the table has room for."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenspace.kernels import words as kernel

TEXTS = st.lists(
    st.sampled_from([*"ab \t\r\n\x0b\xff", "word", "x" * 20, "x" * 101, "\r\n", "é"]), max_size=50
)


def expected(text: bytes, known: dict[bytes, int], most: int) -> tuple[list[int], list[bytes]]:
    """The same, plainly: one word after the other; line ends that follow each other are one."""
    numbers, missed = [], []
    for part in re.findall(rb"[\r\n]|[^ \t\r\n]+", text):
        if part in b"\r\n":
            if not numbers or numbers[-1] != kernel.LINE_END:
                numbers.append(kernel.LINE_END)
        elif len(part) <= kernel.LONGEST and (part in known or len(known) < most):
            numbers.append(known.setdefault(part, len(known)))
        else:
            numbers.append(kernel.MISSED)
            missed.append(part)
    return numbers, missed


@settings(deadline=None)
@given(texts=st.lists(TEXTS.map("".join), min_size=1, max_size=4), most=st.integers(1, 6))
@example(texts=["a b c d e f g a b", "g f e d c b a"], most=3)
def test_numbers_are_given_in_order_and_words_without_one_are_handed_back(texts, most):
    words, known = kernel.Words(most), {}
    counts: dict[int, int] = {}
    for text in texts:
        data = text.encode("utf-8", "surrogateescape")
        numbers, missed = words.number(data)
        wanted, left = expected(data, known, most)
        assert numbers.tolist() == wanted
        assert missed == b"".join(word + b"\n" for word in left)
        for number in wanted:
            counts[number] = counts.get(number, 0) + 1
    assert words.text(0, len(words)) == b"".join(word + b"\n" for word in known)
    assert words.counts.tolist() == [counts[number] for number in range(len(known))]


@pytest.mark.parametrize("length", [1, 8, 100], ids=["short words", "words", "the longest words"])
def test_a_table_grows_and_forgets_nothing(length, rng):
    distinct = [b"%0*d" % (length, n) for n in range(10 ** min(length, 4))]
    order = rng.integers(0, len(distinct), 50_000)
    words = kernel.Words(most=1 << 20)
    numbers, missed = words.number(b" ".join(distinct[k] for k in order))
    assert missed == b""
    assert words.text(0, len(words)).split(b"\n")[:-1] == list(dict.fromkeys(distinct[k] for k in order))
    texts = np.array(words.text(0, len(words)).split(b"\n")[:-1])
    np.testing.assert_array_equal(texts[numbers], np.array(distinct)[order])
    np.testing.assert_array_equal(words.counts, np.bincount(numbers))


def test_words_of_the_same_hash_are_told_apart():
    """Among 300,000 words some 20 pairs share their 31 bits."""
    words = kernel.Words(most=1 << 20)
    numbers, missed = words.number(b" ".join(b"%d" % n for n in range(300_000)))
    assert (len(words), missed) == (300_000, b"")
    np.testing.assert_array_equal(numbers, np.arange(300_000))
    slots = words._table.slots
    hashes = slots[slots != 0] >> 32
    assert len(np.unique(hashes)) < len(hashes) == 300_000


def test_a_table_is_bounded_by_bytes_as_well():
    words = kernel.Words(most=5000)
    numbers, missed = words.number(b" ".join(b"%0100d" % n for n in range(5000)))
    assert 1000 < len(words) < 5000
    assert np.count_nonzero(numbers == kernel.MISSED) == 5000 - len(words) == missed.count(b"\n")


def test_expand_puts_runs_where_the_words_stood(rng):
    lengths = rng.integers(0, 4, 50)
    ends = np.cumsum(lengths)
    runs = kernel.Runs(ends - lengths, ends, rng.integers(0, 1000, ends[-1]).astype(np.int32))
    numbers = rng.integers(-2, 50, 3000).astype(np.int32)
    missing = int(np.count_nonzero(numbers == kernel.MISSED))
    missed_lengths = rng.integers(0, 3, missing)
    missed_ends = np.cumsum(missed_lengths)
    missed = kernel.Runs(
        missed_ends - missed_lengths, missed_ends, rng.integers(1000, 2000, missed_ends[-1]).astype(np.int32)
    )
    ids, line_lengths = kernel.expand(numbers, runs, missed)
    lines: list[list[int]] = [[]]
    left = iter(zip(missed.begins, missed.ends, strict=True))
    for number in numbers:
        if number == kernel.LINE_END:
            lines.append([])
        elif number == kernel.MISSED:
            begin, end = next(left)
            lines[-1] += missed.ids[begin:end].tolist()
        else:
            lines[-1] += runs.ids[runs.begins[number] : runs.ends[number]].tolist()
    assert ids.tolist() == [i for line in lines for i in line]
    assert line_lengths.tolist() == [len(line) for line in lines]
