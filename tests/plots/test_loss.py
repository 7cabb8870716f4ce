import io
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import tokenspace as ts
from tokenspace.errors import CorpusError, ShapeError, TableFormatError
from tokenspace.plots import LossCurve


def events(*losses: float, epochs: int = 4) -> list:
    return [
        SimpleNamespace(tokens=100 * n, loss=loss, epoch=min(n, epochs), epochs=epochs)
        for n, loss in enumerate(losses, start=1)
    ]


def drawn(picture, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(picture)
    return file.getvalue().splitlines()


def dots(lines: list[str]) -> np.ndarray:
    """Braille lines as a boolean picture, four dots high and two wide a character."""
    bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
    cells = np.array([[ord(glyph) - 0x2800 for glyph in line] for line in lines])
    picture = np.zeros((4 * cells.shape[0], 2 * cells.shape[1]), bool)
    for y, row in enumerate(bits):
        for x, bit in enumerate(row):
            picture[y::4, x::2] = cells & bit != 0
    return picture


def test_the_curve_goes_through_the_losses():
    losses = [5.0, 4.0, 3.0, 1.0]
    picture = dots(LossCurve.of(events(*losses)).braille(40, 8))
    for n, loss in enumerate(losses, start=1):
        column = picture[:, round(n / 4 * 79)]
        expected = (5.0 - loss) / 4.0 * 31
        assert np.abs(np.flatnonzero(column) - expected).min() <= 1
    assert not picture[:, : round(79 / 4)].any()  # nothing was measured before the first point


@pytest.mark.parametrize("losses", [(9, 1), (1, 9), (1, 9, 1), (3, 1, 2, 8, 0)])
def test_a_steep_line_has_no_gaps(losses):
    picture = dots(LossCurve.of(events(*losses)).braille(3, 10))
    columns = [np.flatnonzero(column) for column in picture.T if column.any()]
    for rows in columns:
        assert np.all(np.diff(rows) == 1)
    for left, right in itertools.pairwise(columns):
        assert right.min() <= left.max() + 1
        assert left.min() <= right.max() + 1


def test_labels_say_how_much_and_how_far():
    lines = drawn(LossCurve.of(events(2.5, 1.25, 0.5)), 80)
    assert lines[0] == "loss"
    assert lines[1].startswith("2.5000 │")
    assert lines[8].startswith("0.5000 │")
    assert lines[10].split() == ["0", "300", "tokens,", "epoch", "3", "of", "4"]
    assert "0 to 300 tokens" in drawn(LossCurve.of(events(2.5, 1.25, 0.5)), 20)[10]


@pytest.mark.parametrize("width", [10, 20, 80, 300])
def test_no_line_is_wider_than_the_terminal(width):
    lines = drawn(LossCurve.of(events(*np.linspace(12, 2, 500))), width)
    assert max(map(len, lines)) <= min(width, 72)
    assert dots([line.split("│")[1] for line in lines[1:9]]).any()


def test_a_flat_loss_is_a_line():
    picture = dots(LossCurve.of(events(2.0, 2.0, 2.0)).braille(10, 4))
    assert picture.any(axis=1).sum() == 1


def test_two_points_are_needed_and_only_finite_ones_count():
    for given in ([], events(1.0), events(1.0, np.nan, np.inf)):
        with pytest.raises(ShapeError, match="at least two points"):
            LossCurve.of(given)
    assert LossCurve.of(events(1.0, np.nan, 3.0)).tokens.tolist() == [100, 300]


def test_the_figure_holds_the_events_of_a_run(write):
    told: list = []
    path = write("text.txt", "the cat chased the mouse\nthe king ruled the land\n" * 500)
    ts.train.skipgram([path], dim=8, epochs=4, threads=1, snapshots=3, progress=told.append)
    (line,) = ts.plots.loss(told).data
    told = [event for event in told if event.phase == "training"]
    assert len(told) >= 4  # one at least before each snapshot
    assert line.x.tolist() == [event.tokens for event in told]
    assert line.y.tolist() == [event.loss for event in told]


LINE = '{"tokens": %d, "epoch": %d, "epochs": 2, "loss": %f, "seconds": 0.1}\n'
SCORES = '{"tokens": 20, "epoch": 2, "epochs": 2, "scores": [{"file": "a", "spearman": 0.5}]}\n'


def test_a_file_of_losses_is_read_also_while_it_is_written(write):
    path = write("t.loss.jsonl", LINE % (10, 1, 3.0) + LINE % (20, 2, 2.5) + SCORES + LINE[:30])
    curve = LossCurve.read(path)
    assert curve.tokens.tolist() == [10, 20]
    assert curve.losses.tolist() == [3.0, 2.5]
    assert curve.until == "20 tokens, epoch 2 of 2"


def test_what_training_writes_is_what_it_told(write, tmp_path):
    path = write("text.txt", "the cat chased the mouse\nthe king ruled the land\n" * 500)
    ts.train.skipgram([path], dim=8, epochs=30, threads=1, output=tmp_path / "t")
    curve = LossCurve.read(tmp_path / "t.loss.jsonl")
    assert curve.tokens.tolist() == [5000 * n for n in range(1, 31)]
    assert curve.losses[0] > curve.losses[-1] + 0.3


@pytest.mark.parametrize(
    "line",
    ["[]", "1", "{", '{"loss": 1.0}', '{"tokens": "x", "epoch": 1, "epochs": 1, "loss": 1}', "\x7f", ""],
)
def test_a_line_that_is_no_loss_is_named(write, line):
    path = write("losses", LINE % (10, 1, 3.0) + line + "\n")
    with pytest.raises(TableFormatError, match="losses, line 2 is no loss: a JSON object"):
        LossCurve.read(path)


def test_files_that_hold_no_curve_are_refused(write, tmp_path):
    with pytest.raises(ShapeError, match="at least two points, found 1"):
        LossCurve.read(write("losses", LINE % (10, 1, 3.0)))
    for content in ("", "\n"):
        with pytest.raises(TableFormatError, match="losses is empty"):
            LossCurve.read(write("losses", content))
    with pytest.raises(CorpusError, match="there is no file"):
        LossCurve.read(tmp_path / "missing")


def test_a_file_of_what_no_run_tells_is_one_error(write):
    with pytest.raises(TableFormatError, match="line 1 is no loss"):
        LossCurve.read(write("losses", LINE % (-10, 1, 3.0)))
    with pytest.raises(TableFormatError, match="after 20 tokens it tells of 10; give the file of one run"):
        LossCurve.read(write("losses", LINE % (20, 1, 3.0) + LINE % (10, 1, 3.0)))
    with pytest.raises(ShapeError, match="found 0, and 2 that are not finite; lower the learning rate"):
        LossCurve.read(
            write("losses", (LINE % (20, 1, 3.0) + LINE % (30, 1, 3.0)).replace("3.000000", "NaN"))
        )
