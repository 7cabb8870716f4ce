import io
import re

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

import tokenspace as ts
from tokenspace.errors import CorpusError, ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.plots import Heatmap
from tokenspace.plots.heatmap import COLORED, PLAIN
from tokenspace.plots.labels import fitted
from tokenspace.shown import shown

WIDTHS = [8, 20, 40, 80, 200]


def drawn(picture, width: int = 80, color: bool = False) -> list[str]:
    file = io.StringIO()
    system = "standard" if color else None
    Console(
        file=file, width=width, color_system=system, force_terminal=color, no_color=not color, _environ={}
    ).print(picture)
    return file.getvalue().splitlines()


def table(rows, tokens=None) -> ts.Table:
    rows = np.asarray(rows, np.float32)
    return ts.Table(rows, ts.Vocab(tokens or [f"t{i}" for i in range(len(rows))]))


def test_positive_and_negative_differ_without_color():
    picture = Heatmap.of(table([[1, -1, 0.5, -0.5, 0.25, -0.25, 0, -0.0]]), ["t0"])
    cells = drawn(picture)[1].removeprefix("t0    ")
    assert cells.ljust(8) == "█≡▒-░·  "
    assert not set(PLAIN[:4]) & set(PLAIN[5:])  # no glyph stands for both


def test_with_color_the_color_tells_them_apart():
    line = drawn(Heatmap.of(table([[1, -1]]), ["t0"]), color=True)[1]
    positive, negative = re.findall(r"\x1b\[([\d;]+)m(█)", line)
    assert positive[0] == "33"
    assert negative[0] == "94"
    assert set(COLORED[:4]) == set(COLORED[5:])


def test_each_column_is_a_number_of_the_table(rng):
    values = rng.normal(size=(3, 60)).astype(np.float32)
    picture = Heatmap.of(table(values), ["t0", "t1", "t2"])
    assert np.array_equal(picture.values, values)
    assert picture.limit == np.sort(np.abs(values), axis=None)[176]  # of 180: 177 are 98.3 %
    for line, row in zip(drawn(picture)[1:4], values, strict=True):
        cells = line[6:].ljust(60)
        for glyph, value in zip(cells, row, strict=True):
            level = PLAIN.index(glyph) - 4
            assert abs(np.clip(value / picture.limit, -1, 1) - level / 4) <= 0.125 + 1e-6


def test_the_scale_ends_at_a_number_that_there_is():
    picture = Heatmap.of(table([[1, 0]]), ["t0"])
    assert picture.limit == 1
    assert drawn(picture)[-1] == "scale -1 ≡=-·   ░▒▓█ +1"  # nothing lies beyond


def test_one_id_or_word_is_one_row():
    small = table([[1, 0], [0, 1]])
    assert Heatmap.of(small, 1).labels == ["t1"]
    assert Heatmap.of(small, "t1").labels == ["t1"]


def test_a_narrow_terminal_draws_some_of_the_dimensions_and_says_so(rng):
    values = rng.normal(size=(1, 384)).astype(np.float32)
    lines = drawn(Heatmap.of(table(values), ["t0"]), 80)
    assert lines[0] == "dim   74 of 384 dimensions, evenly spread"
    assert len(lines[1].ljust(80)) == 80
    kept = values[0][np.rint(np.linspace(0, 383, 74)).astype(int)]  # not means of neighbors
    signs = [np.sign(PLAIN.index(glyph) - 4) for glyph in lines[1].ljust(80)[6:]]
    assert all(sign in (0, np.sign(value)) for sign, value in zip(signs, kept, strict=True))
    assert drawn(Heatmap.of(table(values[:, :74]), ["t0"]), 80)[0] == "dim   74 dimensions"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("color", [False, True])
def test_no_line_is_wider_than_the_terminal_and_each_token_has_one(rng, width, color):
    tokens = ["cat", "東京タワー", "a" * 60, "\x1b[31mred", "e\u0301", "42", "42", "\udcff"]
    picture = Heatmap.of(table(rng.normal(size=(8, 100)), tokens), range(8))
    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in drawn(picture, width, color)]
    assert max(map(cell_len, lines)) <= width
    starts = [fitted(shown(token), min(60, max(width // 4, 5))).rstrip() for token in tokens]
    first = next(n for n, line in enumerate(lines) if line.startswith(starts[0]))
    for line, start in zip(lines[first : first + 8], starts, strict=True):
        assert line.startswith(start)


def test_columns_stay_aligned_beside_wide_tokens():
    lines = drawn(Heatmap.of(table([[1, 1], [1, 1], [1, 1]], ["cat", "東京タワー", "a" * 60]), range(3)))
    starts = {cell_len(line[: line.index("██")]) for line in lines[1:4]}
    assert len(starts) == 1


def test_a_token_can_not_drive_the_terminal():
    picture = Heatmap.of(table([[1, 2]], ["\x1b[31mred\u202e"]), [0])
    assert r"'\x1b[31mred\u202e'" in drawn(picture)[1]
    assert "\x1b" not in "".join(drawn(picture))


def test_the_scale_names_the_limits():
    assert drawn(Heatmap.of(table([[2, -2]]), ["t0"]))[-1] == "scale -2 ≡=-·   ░▒▓█ +2"
    assert drawn(Heatmap.of(table([[2.5, -2.5]]), ["t0"]), 20)[-2:] == ["-2.5 ≡=-·", "░▒▓█ +2.5"]
    one_large = np.ones((1, 100), np.float32)
    one_large[0, 7] = 50
    assert drawn(Heatmap.of(table(one_large), ["t0"]))[-1].endswith("+1   1.0% lie beyond")


@pytest.mark.parametrize("value", [0.0, 1e-45, 3e38])
def test_zeros_and_extremes_are_drawn(value):
    picture = Heatmap.of(table([[value, -value]]), ["t0"])
    assert picture.limit > 0
    cells = drawn(picture)[1].removeprefix("t0    ").ljust(2)
    assert cells == ("  " if value == 0 else "█≡")


def test_a_composed_word_shows_its_pieces(minilm):
    picture = Heatmap.of(minilm, ["king", "embeddings"])
    assert picture.labels == ["king", "embeddings"]
    assert "embeddings = mean of the rows of em ##bed ##ding ##s" in "\n".join(drawn(picture))
    pieces = [minilm.vocab.id(piece) for piece in ("em", "##bed", "##ding", "##s")]
    np.testing.assert_allclose(picture.values[1], minilm.lookup(pieces).mean(axis=0), atol=1e-7)
    np.testing.assert_array_equal(picture.values[0], minilm["king"])


def test_a_text_is_its_tokens_in_order(minilm):
    picture = Heatmap.of_text(minilm, "The cat, the hat")
    assert picture.labels == ["[CLS]", "the", "cat", ",", "the", "hat", "[SEP]"]
    np.testing.assert_array_equal(picture.values, minilm.lookup([row.ids[0] for row in picture.rows]))


def test_the_figure_holds_the_same_numbers(rng):
    values = rng.normal(size=(3, 10)).astype(np.float32)
    figure = ts.plots.heatmap(table(values, ["42", "42", "<b>"]), [0, 1, 2])
    (drawing,) = figure.data
    assert np.array_equal(drawing.z, values)
    assert (drawing.zmin, drawing.zmax, drawing.zmid) == (-drawing.zmax, drawing.zmax, 0)
    assert list(drawing.y) == [0, 1, 2]  # equal tokens keep a line each
    assert figure.layout.yaxis.ticktext == ("42", "42", "&lt;b&gt;")
    for part in ("%{y}", "%{x}", "%{z"):
        assert part in drawing.hovertemplate


def test_what_can_not_be_drawn(minilm):
    small = table([[1, np.nan], [1, 2]])
    with pytest.raises(ShapeError, match="at least one row"):
        Heatmap.of(small, [])
    with pytest.raises(TableFormatError, match="row 0 of the table"):
        Heatmap.of(small, ["t0"])
    with pytest.raises(TokenIdError):
        Heatmap.of(small, [2])
    pieces = ts.Table(small.weight, ts.Vocab(["##a", "##b"], encoding="wordpiece"))
    with pytest.raises(VocabError, match=r"no tokenizer.*; ask for words"):
        Heatmap.of_text(pieces, "a")
    with pytest.raises(CorpusError, match="no tokens"):
        Heatmap.of_text(minilm, " ")
    for arguments in ({}, {"queries": ["t1"], "text": "t1"}):
        with pytest.raises(ShapeError, match="one of queries and text"):
            ts.plots.heatmap(small, **arguments)
