"""How long a table's rows are, by kind of token.

A row's length (its Euclidean norm) tells what it has been through: tokens that training never met keep the
length that they were drawn with, or stay zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tokenspace.geometry.rows import dots, row_blocks
from tokenspace.plots.page import plotly_objects
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table, check_table
from tokenspace.vocab import Kind

if TYPE_CHECKING:
    import plotly.graph_objects

KINDS: tuple[Kind, ...] = get_args(Kind)
BINS = 40
BARS = " ▁▂▃▄▅▆▇█"
_ROUNDING = 1e-5
_NAMES = max(map(len, KINDS))
_COLUMN = 9
_FIGURES = _NAMES + 4 * _COLUMN + 2  # columns of a line before its bars


@dataclass(frozen=True)
class Norms:
    """The Euclidean length of each row (V,), and the kind of token each belongs to, as an index in KINDS.

    ``rich.print(norms)`` draws a histogram for each kind, ``figure()`` the same with plotly.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[3, 4], [0, 0]], np.float32), Vocab(["cat", "[PAD]"], special=[1]))
    >>> norms = Norms.of(table)
    >>> norms.lengths, norms.counts(bins=2)
    (array([5., 0.]), {'special': array([1, 0]), 'word-initial': array([0, 1])})
    """

    lengths: Float[Array, " V"]
    kinds: Int[Array, " V"]

    @classmethod
    def of(cls, table: Table) -> Norms:
        """Of every row of ``table``; ``TableFormatError`` if one holds NaN or infinity."""
        check_table(table)
        blocks = (rows.astype(np.float64) for _, rows in row_blocks(table))  # a square may pass float32
        lengths = np.concatenate([np.sqrt(dots(rows, rows)) for rows in blocks])
        places = {kind: k for k, kind in enumerate(KINDS)}
        return cls(lengths, np.array([places[kind] for kind in table.vocab.kinds()], np.uint8))

    def by_kind(self) -> dict[Kind, Float[Array, " rows"]]:
        """The lengths of each kind that the table has, in the order of KINDS."""
        return {
            kind: self.lengths[self.kinds == k] for k, kind in enumerate(KINDS) if (self.kinds == k).any()
        }

    def edges(self, bins: int = BINS) -> Float[Array, " edges"]:
        """The ends of ``bins`` equal ranges from the shortest row to the longest: ``bins`` + 1 lengths.

        Rows that are equally long but for rounding stand in the middle, between 0 and twice their length.
        """
        low, high = float(self.lengths.min()), float(self.lengths.max())
        if high - low <= _ROUNDING * high:
            low, high = 0.0, 2 * high or 1.0
        return np.linspace(low, high, bins + 1)

    def counts(self, bins: int = BINS) -> dict[Kind, Int[Array, " bins"]]:
        """How many rows of each kind lie in each range of ``edges``."""
        edges = self.edges(bins)
        return {kind: np.histogram(lengths, edges)[0] for kind, lengths in self.by_kind().items()}

    def figure(self) -> plotly.graph_objects.Figure:
        """A histogram for each kind, one below the other; ``MissingExtra`` without plotly."""
        objects = plotly_objects("a plotly figure")
        from plotly.subplots import make_subplots

        by_kind, counts, edges = self.by_kind(), self.counts(), self.edges()
        titles = [f"{kind}: {len(lengths):,} rows" for kind, lengths in by_kind.items()]
        figure = make_subplots(
            rows=len(counts), shared_xaxes=True, subplot_titles=titles, vertical_spacing=0.3 / len(counts)
        )
        for place, rows in enumerate(counts.values(), start=1):
            bars = objects.Bar(
                x=(edges[:-1] + edges[1:]) / 2,
                y=rows,
                width=np.diff(edges),
                customdata=np.stack([edges[:-1], edges[1:]], axis=1),
                hovertemplate=(
                    "length %{customdata[0]:.4g} to %{customdata[1]:.4g}<br>%{y:,} rows<extra></extra>"
                ),
            )
            figure.add_trace(bars, row=place, col=1)
        figure.update_layout(
            template="none",
            title=f"lengths of {len(self.lengths):,} rows",
            height=120 + 180 * len(counts),
            showlegend=False,
        )
        figure.update_xaxes(title="Euclidean length of the row", row=len(counts), col=1)
        figure.update_yaxes(title="rows")
        return figure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """A line for each kind, its bars beside its figures; below them where the terminal is narrow."""
        width = options.max_width
        wide = width >= _FIGURES + 16
        bins = min(BINS, width - _FIGURES if wide else width)
        groups = {str(kind): lengths for kind, lengths in self.by_kind().items()}
        if len(groups) > 1:
            groups["all"] = self.lengths
        edges = self.edges(bins)
        ends = _ends(edges, bins)
        if wide:
            head = "".join(f"{name:>{_COLUMN}}" for name in ("rows", "min", "median", "max"))
            yield Text(f"{'kind':<{_NAMES}}{head}  {ends}", "bold", no_wrap=True)
        else:
            yield Text(ends, "bold", no_wrap=True)
        for name, lengths in groups.items():
            bars = _bars(np.histogram(lengths, edges)[0])
            if wide:
                figures = (f"{len(lengths):,}", *(f"{x:.4g}" for x in _summary(lengths)))
                cells = "".join(f"{figure:>{_COLUMN}}" for figure in figures)
                yield Text.assemble(f"{name:<{_NAMES}}{cells}  ", (bars, "cyan"), no_wrap=True)
            else:
                yield Text(f"{name} {len(lengths):,}")
                yield Text(bars, "cyan", no_wrap=True)
        yield Text("Each line's fullest range has the tallest bar; no bar, no row.", "dim")


def norms(table: Table) -> plotly.graph_objects.Figure:
    """The lengths of a table's rows by kind of token, as a plotly figure; ``MissingExtra`` without plotly."""
    return Norms.of(table).figure()


def _summary(lengths: Float[Array, " rows"]) -> tuple[float, float, float]:
    return float(lengths.min()), float(np.median(lengths)), float(lengths.max())


def _bars(counts: Int[Array, " bins"]) -> str:
    """A character for each count: as tall as its share of the largest, and never nothing for a row.

    >>> _bars(np.array([0, 1, 400, 800]))
    ' ▁▄█'
    """
    tallest = len(BARS) - 1
    return "".join(BARS[-(-tallest * count // max(1, counts.max()))] for count in counts.tolist())


def _ends(edges: Float[Array, " edges"], width: int) -> str:
    """The first and the last length at the two ends of ``width`` columns."""
    first, last = f"{edges[0]:.4g}", f"{edges[-1]:.4g}"
    return first + last.rjust(width - len(first))
