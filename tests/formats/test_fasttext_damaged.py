"""fastText models that are cut off, that lie about their counts, or that hold NaN."""

import struct

import numpy as np
import pytest

from tokenspace.errors import TableFormatError
from tokenspace.formats.fasttext import is_model, load, open_model

from .fasttext_files import matrix, model, model_parts


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("version", 13, "(byte 4): version 13; versions 11 and 12 are read"),
        ("dim", 0, "(byte 8): option dim is 0"),
        ("dim", -1, "option dim is -1"),
        ("dim", 3, "the input matrix has 7 rows of 2, where 7 of 3 belong"),
        ("loss", 5, "option loss is 5"),
        ("loss", 0, "option loss is 0"),
        ("model", 4, "option model is 4"),
        ("model", 3, "the output matrix has 3 rows of 2, where 0 of 2 belong"),
        ("bucket", -1, "option bucket is -1"),
        ("bucket", 5, "the input matrix has 7 rows of 2, where 8 of 2 belong"),
        ("minn", -1, "option minn is -1"),
        ("maxn", -1, "option maxn is -1"),
        ("maxn", 101, "n-grams of up to 101 characters; 100 are the most"),
        ("t", float("nan"), "option t is nan"),
        ("entries", 4, "4 entries of 3 words and 0 labels"),
        ("entries", -1, "-1 entries of 3 words"),
        ("words", 0, "3 entries of 0 words"),
        ("words", 2, "3 entries of 2 words"),
        ("labels", -1, "3 words and -1 labels"),
        ("tokens", -1, "-1 tokens of text"),
        ("pruned", 5, "5 of its n-grams are kept, the others pruned"),
        ("pruned", -2, "-2 pruned n-grams"),
        ("count 1", -5, "entry 2 of 3 is of type 0, has count -5"),
        ("type 1", 1, "entry 2 of 3 is of type 1"),
        ("type 1", 2, "entry 2 of 3 is of type 2"),
        ("input quantized", 1, "is a quantized fastText model (.ftz): its input matrix is quantized"),
        ("input quantized", 2, "whether the input matrix is quantized must be 0 or 1, found 2"),
        ("output quantized", 1, "its output matrix is quantized"),
        ("input rows", 8, "the input matrix has 8 rows of 2, where 7 of 2 belong"),
        ("input rows", 2**62, "has 4,611,686,018,427,387,904 rows of 2"),
        ("input dim", 3, "the input matrix has 7 rows of 3, where 7 of 2 belong"),
        ("output rows", 2, "the output matrix has 2 rows of 2, where 3 of 2 belong"),
        ("output dim", -2, "the output matrix has 3 rows of -2"),
    ],
)
def test_each_number_is_held_against_the_others(write, part, value, message):
    parts = model_parts()
    layout = {1: "<b", 4: "<i", 8: "<d" if part == "t" else "<q"}[len(parts[part])]
    parts[part] = struct.pack(layout, value)
    with pytest.raises(TableFormatError) as error:
        load(write("m.bin", b"".join(parts.values())))
    assert message in str(error.value)
    assert str(error.value).startswith(str(error.value).split(" ")[0])
    assert "m.bin" in str(error.value)


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"dim": struct.pack("<i", HUGE), "input dim": struct.pack("<q", HUGE)},
            "needs 60,129,542,116 bytes",
        ),
        (
            {"bucket": struct.pack("<i", HUGE), "input rows": struct.pack("<q", HUGE + 3)},
            "needs 17,179,869,200 bytes",
        ),
        ({"entries": struct.pack("<i", HUGE), "words": struct.pack("<i", HUGE)}, "entries can't lie in the"),
        ({"entries": struct.pack("<i", 9), "words": struct.pack("<i", 9)}, "entry 4 of 9"),
        (
            {"entries": struct.pack("<i", 0), "words": struct.pack("<i", 0)},
            "0 entries of 0 words and 0 labels",
        ),
        (
            {"entries": struct.pack("<i", 2), "labels": struct.pack("<i", -1)},
            "2 entries of 3 words and -1 labels",
        ),
        ({"word 0": b"</s>"}, "is of type"),
        ({"word 2": b"a" * 65_537 + b"\0"}, "has count 3 and 65,537 bytes"),
        ({"word 1": b"a" * 3_000_000}, "entry 2 of 3 has no end, or more than 65,536 bytes"),
        ({"output numbers": b"\0" * 20}, "needs 24 bytes, and 20 are left"),
        ({"output numbers": b"\0" * 25}, "1 byte after the output matrix, the last part"),
    ],
)
def test_nothing_is_allocated_because_the_file_says_so(write, settings, message):
    with pytest.raises(TableFormatError) as error:
        load(write("m.bin", b"".join((model_parts() | settings).values())))
    assert message in str(error.value)


def test_a_file_cut_anywhere_is_refused(write):
    parts = list(model_parts().values())
    data, ends = b"".join(parts), np.cumsum([0, *map(len, parts)]).tolist()
    for end in {*ends[:-1], *(end - 1 for end in ends[1:])}:
        with pytest.raises(TableFormatError, match=r"m\.bin"):
            load(write("m.bin", data[:end]))


@pytest.mark.parametrize("options", [{"maxn": 0}, {}])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_vector_with_nan_is_named(write, options, bad):
    numbers = matrix(7, 2, 1)
    numbers[1, 1] = bad
    parts = model_parts(**options) | {"input numbers": numbers.tobytes()}
    path = write("m.bin", b"".join(parts.values()))
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'cat', holds NaN"):
        load(path)
    assert len(load(path, limit=1)) == 1
    with pytest.raises(TableFormatError, match=r"'cat' hold NaN"):
        open_model(path).vector("cat")


def test_an_ngram_row_with_nan_is_named_by_the_first_word_that_has_it(write):
    numbers = matrix(7, 2, 1)
    numbers[3:] = np.nan
    path = write("m.bin", b"".join((model_parts() | {"input numbers": numbers.tobytes()}).values()))
    with pytest.raises(TableFormatError, match=r"row 1 of the table, token 'cat', holds NaN"):
        load(path)
    with pytest.raises(TableFormatError, match="n-grams of 'dog' hold NaN"):
        load(path, limit=1)["dog"]


def test_a_word_with_too_many_ngrams_is_named(write):
    path = write("m.bin", model(words=[("a", 1), ("b" * 65_536, 1)], minn=1, maxn=17))
    with pytest.raises(TableFormatError, match="word 2 has 65,536 bytes, and more than 1,048,576 n-grams"):
        load(path)


def test_what_is_a_model():
    assert is_model(model())
    assert is_model(model(version=None))
    assert not is_model(b"400000 300\nthe " + bytes(200))
    assert not is_model(b"\x93NUMPY" + bytes(200))
    assert not is_model(bytes(200))
    assert not is_model(model(version=None)[:71])
    assert not is_model(b"")


@pytest.mark.parametrize(
    "option",
    [
        {"dim": 0},
        {"dim": 1 << 20},
        {"ws": 0},
        {"loss": 9},
        {"model": 9},
        {"bucket": -1},
        {"maxn": -1},
        {"t": np.inf},
    ],
    ids=str,
)
def test_what_has_no_magic_must_be_possible(write, option):
    data = b"".join((model_parts(version=None) | {k: _packed(k, v) for k, v in option.items()}).values())
    assert not is_model(data)
    with pytest.raises(TableFormatError, match="is no fastText model"):
        load(write("m.bin", data))


def _packed(name, value):
    return struct.pack("<d" if name == "t" else "<i", value)
