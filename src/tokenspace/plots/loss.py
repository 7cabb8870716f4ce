"""How the loss fell while a table learned."""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tokenspace import text
from tokenspace.errors import ShapeError, TableFormatError
from tokenspace.plots.page import plotly_objects
from tokenspace.shapes import Array, Float
from tokenspace.shown import shown

if TYPE_CHECKING:
    import plotly.graph_objects

HEIGHT = 8  # lines of the drawing
WIDTH = 72  # columns at most
LARGEST_FILE = 2**28  # bytes of losses
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # a braille character's dots by column and row


@runtime_checkable
class Event(Protocol):
    """What a trainer tells of its progress (``train.Progress`` is one): the loss since its last event."""

    @property
    def tokens(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def epoch(self) -> int: ...
    @property
    def epochs(self) -> int: ...


@dataclass(frozen=True)
class LossCurve:
    """The loss (P,) after so many tokens read (P,), in the order of training; ``until`` names the end.

    A loss is the mean since the point before it.

    ``rich.print(curve)`` draws it as wide as the terminal is, ``figure()`` with plotly.
    """

    tokens: Float[Array, " P"]
    losses: Float[Array, " P"]
    until: str

    @classmethod
    def of(cls, events: Sequence[Event]) -> LossCurve:
        """From the events that a trainer told its ``progress``; ``ShapeError`` if there are fewer than two.

        A loss that is not finite is left out.
        """
        points = [event for event in events if math.isfinite(event.loss)]
        if len(points) < 2:
            found, rest, advice = f"{len(points)}", len(events) - len(points), "train longer"
            if rest:
                found, advice = f"{found}, and {rest:,} that are not finite", "lower the learning rate"
            raise ShapeError(f"a loss curve needs at least two points, found {found}; {advice}")
        last = points[-1]
        until = f"{last.tokens:,} tokens, epoch {last.epoch:,} of {last.epochs:,}"
        return cls(
            np.array([float(event.tokens) for event in points]),
            np.array([float(event.loss) for event in points]),
            until,
        )

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> LossCurve:
        """Read the file that training writes (t.loss.jsonl; t.training/loss.jsonl while it trains).

        Lines without a loss, which hold scores, are left out. ``TableFormatError`` names the line that is
        none of these, ``CorpusError`` a file that can't be read; ``ShapeError`` as for ``of``.
        """
        _, content = text.read(path, LARGEST_FILE)
        if not content.strip():
            raise TableFormatError(f"{shown(os.fspath(path))} is empty: no loss is written yet; train longer")
        lines = content.split("\n")[:-1]  # a line without its end is being written
        points = [_point(path, n, line) for n, line in enumerate(lines, start=1)]
        curve = [point for point in points if point is not None]
        for before, point in itertools.pairwise(curve):
            if point.tokens < before.tokens:
                raise TableFormatError(
                    f"{shown(os.fspath(path))} holds no one run's losses: after {before.tokens:,} tokens it "
                    f"tells of {point.tokens:,}; give the file of one run"
                )
        return cls.of(curve)

    def figure(self) -> plotly.graph_objects.Figure:
        """As a plotly line; ``MissingExtra`` without plotly."""
        objects = plotly_objects("a plotly figure")
        line = objects.Scatter(
            x=self.tokens,
            y=self.losses,
            mode="lines",
            hovertemplate="%{x:,} tokens<br>loss %{y:.4f}<extra></extra>",
        )
        figure = objects.Figure(line)
        figure.update_layout(
            template="none", title=f"loss until {self.until}", xaxis_title="tokens read", yaxis_title="loss"
        )
        return figure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        low, high = float(self.losses.min()), float(self.losses.max())
        labels = {HEIGHT - 1: f"{low:.4f}", 0: f"{high:.4f}"}
        margin = max(map(len, labels.values()))
        columns = max(1, min(WIDTH, options.max_width) - margin - 2)
        yield Text("loss", "bold")
        for row, line in enumerate(self.braille(columns, HEIGHT)):
            yield Text.assemble(
                f"{labels.get(row, ''):>{margin}} ", ("│", "dim"), (line, "green"), no_wrap=True
            )
        yield Text(" " * (margin + 1) + "└" + "─" * columns, "dim", no_wrap=True)
        end = self.until
        if len(end) + 3 <= columns:
            yield Text(" " * (margin + 2) + "0" + end.rjust(columns - 1))
        else:
            yield Text(f"0 to {end}")

    def braille(self, columns: int, height: int) -> list[str]:
        """The curve in ``height`` lines of ``columns`` braille characters, each 2 × 4 dots, from 0 tokens on.

        Each column of dots shows the mean of the losses that fall in it, or a straight line between them.

        >>> LossCurve(np.array([0.0, 1.0]), np.array([1.0, 0.0]), "").braille(4, 2)
        ['⠑⢄⠀⠀', '⠀⠀⠑⢄']
        """
        first, heights = self._heights(2 * columns, 4 * height)
        cells = np.zeros((height, columns), np.int64)
        before = heights[0]
        for x, y in enumerate(heights, start=first):
            reached = range(y, before) if y < before else range(before + 1, y + 1)  # a steep fall has no gaps
            for dot in reached or [y]:
                cells[dot // 4, x // 2] |= _DOTS[x % 2][dot % 4]
            before = y
        return ["".join(chr(0x2800 + cell) for cell in row) for row in cells.tolist()]

    def _heights(self, columns: int, rows: int) -> tuple[int, list[int]]:
        """The first column of dots that the curve reaches, and from there on the row of each, 0 on top."""
        places = np.rint(self.tokens / max(self.tokens[-1], 1) * (columns - 1)).astype(int)
        points = np.bincount(places)
        filled = np.flatnonzero(points)
        means = np.bincount(places, self.losses)[filled] / points[filled]
        low, high = self.losses.min(), self.losses.max()
        fallen = (high - np.interp(np.arange(filled[0], columns), filled, means)) / ((high - low) or 1.0)
        return int(filled[0]), np.rint(fallen * (rows - 1)).astype(int).tolist()


class _Point(NamedTuple):
    tokens: int
    loss: float
    epoch: int
    epochs: int


def _point(path: str | os.PathLike[str], number: int, line: str) -> _Point | None:
    """A line of a file of losses; None if it has no loss."""
    try:
        about: dict[str, Any] = json.loads(line)
        if "loss" not in about and "scores" in about:
            return None
        tokens, epoch, epochs = (int(about[key]) for key in ("tokens", "epoch", "epochs"))
        if min(tokens, epoch, epochs) < 0:
            raise ValueError
        return _Point(tokens, float(about["loss"]), epoch, epochs)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise TableFormatError(
            f"{shown(os.fspath(path))}, line {number:,} is no loss: a JSON object with tokens, epoch, epochs "
            f"and loss; found {line[:60]!r}"
        ) from None


def loss(events: Sequence[Event]) -> plotly.graph_objects.Figure:
    """The loss against the tokens read, as a plotly figure, from the events that a trainer told.

        events = []
        ts.train.skipgram(["notes.txt"], progress=events.append)
        ts.plots.loss(events)

    ``ShapeError`` if there are fewer than two, ``MissingExtra`` without plotly.
    """
    return LossCurve.of(events).figure()
