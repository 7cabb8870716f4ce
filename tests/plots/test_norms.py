import io
import re

import numpy as np
import pytest
from rich.console import Console

import tokenspace as ts
from tokenspace.errors import TableFormatError
from tokenspace.plots import Norms
from tokenspace.plots.norms import BARS


def drawn(picture, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(picture)
    return file.getvalue().splitlines()


@pytest.fixture
def mixed() -> ts.Table:
    tokens = ["<s>", "<0x0A>", "▁king", "▁the", "dom", "<unused7>"]
    rows = np.array([[0, 0], [3, 4], [6, 8], [0, 10], [1, 0], [0.5, 0]], np.float32)
    return ts.Table(rows, ts.Vocab(tokens, special=[0]))


def test_the_lengths_of_a_real_table(minilm):
    norms = Norms.of(minilm)
    assert [round(x, 3) for x in (norms.lengths.min(), np.median(norms.lengths), norms.lengths.max())] == [
        0.245, 1.111, 1.694,
    ]  # fmt: skip
    np.testing.assert_allclose(norms.lengths, np.linalg.norm(minilm.weight, axis=1), rtol=1e-5)
    sizes = {kind: len(lengths) for kind, lengths in norms.by_kind().items()}
    assert sizes == {"special": 5, "word-initial": 23_695, "continuation": 5_828, "unused": 994}


def test_each_row_is_counted_once_under_its_kind(mixed):
    norms = Norms.of(mixed)
    assert norms.lengths.tolist() == [0, 5, 10, 10, 1, 0.5]
    counts = norms.counts(bins=10)
    assert list(counts) == ["special", "byte", "word-initial", "continuation", "unused"]
    assert counts["word-initial"].tolist() == [0] * 9 + [2]
    assert counts["byte"].tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert sum(rows.sum() for rows in counts.values()) == 6
    assert norms.edges(10).tolist() == list(range(11))


def test_the_terminal_shows_each_kind_with_its_figures(mixed):
    lines = drawn(Norms.of(mixed), 80)
    assert re.fullmatch(r"kind +rows +min +median +max +0 +10", lines[0])
    assert re.fullmatch(r"word-initial +2 +10 +10 +10 +█", lines[3])
    assert re.fullmatch(r"special +1 +0 +0 +0  █ *", lines[1])
    assert lines[6].startswith("all")
    assert lines[6].count("█") == 1  # the two rows of length 10
    assert sum(glyph in BARS[1:] for glyph in lines[6]) == 5


@pytest.mark.parametrize("width", [8, 20, 57, 58, 80, 300])
def test_no_line_is_wider_than_the_terminal(mixed, width):
    lines = drawn(Norms.of(mixed), width)
    assert max(map(len, lines)) <= width
    assert sum("█" in line for line in lines) == 6


def test_a_single_row_among_thousands_still_has_a_bar():
    rows = np.ones((5001, 1), np.float32)
    rows[0] = 3
    lines = drawn(Norms.of(ts.Table(rows, ts.Vocab([f"t{i}" for i in range(5001)]))), 80)
    assert lines[1].rstrip().endswith("▁")
    assert not any(line.startswith("all") for line in lines)  # one kind is all


@pytest.mark.parametrize("value", [0.0, 1.0, 3e38], ids=["zero", "one", "huge"])
def test_equal_rows_are_one_bar(value):
    norms = Norms.of(ts.Table(np.full((4, 3), value, np.float32), ts.Vocab(list("abcd"))))
    assert np.isfinite(norms.lengths).all()
    assert sum(drawn(norms, 80)[1].count(bar) for bar in BARS[1:]) == 1


def test_a_row_that_is_no_number_is_named():
    with pytest.raises(TableFormatError, match="token 'b'"):
        Norms.of(ts.Table(np.array([[1], [np.inf]], np.float32), ts.Vocab(["a", "b"])))


def test_the_figure_holds_the_same_counts(mixed):
    norms = Norms.of(mixed)
    figure = ts.plots.norms(mixed)
    for bars, (kind, rows) in zip(figure.data, norms.counts().items(), strict=True):
        assert bars.y.tolist() == rows.tolist(), kind
    titles = [note.text for note in figure.layout.annotations]
    assert titles[2] == "word-initial: 2 rows"


def test_rows_of_length_one_but_for_rounding_are_equal(rng):
    rows = rng.normal(size=(500, 50))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    norms = Norms.of(ts.Table(rows, ts.Vocab([f"t{i}" for i in range(500)])))
    assert norms.counts(bins=9)["word-initial"].tolist() == [0, 0, 0, 0, 500, 0, 0, 0, 0]
    assert norms.edges(9)[[0, -1]] == pytest.approx([0, 2])
