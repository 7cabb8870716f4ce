"""Rows as colors: which of their numbers are large, and which way.

In a terminal each row is a line and each dimension a column. Without color, positive numbers are shades
(░▒▓█) and negative ones strokes (·-=≡); with color both are shades, and the color tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tokenspace.errors import CorpusError, ShapeError
from tokenspace.geometry import Resolved, resolve
from tokenspace.plots.labels import fitted, on_page
from tokenspace.plots.page import plotly_objects
from tokenspace.shapes import Array, ArrayLike, Float, Int
from tokenspace.shown import shown
from tokenspace.table import Table, check_table, tokenizer_of
from tokenspace.text import check_text

if TYPE_CHECKING:
    import plotly.graph_objects

POSITIVE, NEGATIVE = "yellow", "bright_blue"
PLAIN = "≡=-· ░▒▓█"  # from -limit to +limit
COLORED = "█▓▒░ ░▒▓█"
STEPS = len(PLAIN) // 2  # shades on each side of zero
WITHIN = 0.98  # the share of the numbers that the scale covers: a few large ones would pale all others


@dataclass(frozen=True)
class Heatmap:
    """Rows of a table side by side.

    - ``rows``: what each is: the word asked for, and the row, or the pieces' rows whose mean it is
    - ``values``: (K, D)
    - ``limit``: where the color scale ends on both sides; at least 98 % of the values lie within

    ``rich.print(heatmap)`` draws it as wide as the terminal is, ``figure()`` with plotly.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 0, -1], [-0.5, 0.5, 0.25]], np.float32), Vocab(["cat", "dog"]))
    >>> Console(width=40).print(Heatmap.of(table, ["cat", "dog"]))
    dim   3 dimensions
    cat   █ ≡
    dog   -▒░
    scale -1 ≡=-·   ░▒▓█ +1
    """

    rows: tuple[Resolved, ...]
    values: Float[Array, "K D"]
    limit: float

    @classmethod
    def of(cls, table: Table, queries: str | int | Iterable[str | int | ArrayLike]) -> Heatmap:
        """The rows of words, ids or vectors; a word that the vocabulary lacks is composed (see ``resolve``).

        ``ShapeError`` if there is none.
        """
        check_table(table)
        asked = [queries] if isinstance(queries, str | Integral) else queries
        if isinstance(asked, bytes | bytearray | Mapping) or not isinstance(asked, Iterable):
            raise ShapeError(f"a heat map shows words, ids or vectors: give a list, found {queries!r}")
        rows = tuple(resolve(table, query) for query in asked)
        if not rows:
            raise ShapeError("a heat map needs at least one row; give a word")
        values = np.stack([row.vector for row in rows])
        return cls(rows, values, _limit(values))

    @classmethod
    def of_text(cls, table: Table, text: str) -> Heatmap:
        """The rows of a text's tokens, in order, with those that the tokenizer adds.

        ``VocabError`` if the table has no tokenizer, ``CorpusError`` if the text has no tokens.
        """
        check_table(table)
        check_text(text)
        tokenizer = tokenizer_of(table)
        ids = tokenizer.encode(text).ids.tolist() if text.strip() else []
        if not ids:
            raise CorpusError("the text has no tokens; give at least one word")
        return cls.of(table, ids)

    @property
    def labels(self) -> list[str]:
        """What to call each row: its token, or the word that was composed."""
        return [row.tokens[0] if len(row.tokens) == 1 else row.word or "vector" for row in self.rows]

    def figure(self) -> plotly.graph_objects.Figure:
        """As a plotly figure: blue below zero, white at zero, red above; ``MissingExtra`` without plotly."""
        objects = plotly_objects("a plotly figure")
        rows, width = self.values.shape
        places = list(range(rows))
        figure = objects.Figure(
            objects.Heatmap(
                z=self.values,
                y=places,  # numbers, since the same token may stand on two lines
                zmin=-self.limit,
                zmid=0,
                zmax=self.limit,
                colorscale="RdBu",
                reversescale=True,
                hovertemplate="%{y}<br>dimension %{x}<br>%{z:.6g}<extra></extra>",
            )
        )
        figure.update_layout(
            template="none",
            title=f"{rows:,} rows × {width:,} dimensions; colors end at ±{self.limit:.3g}",
            height=max(300, 160 + 24 * rows),
            xaxis={"title": "dimension", "zeroline": False, "showgrid": False},
            yaxis={
                "tickvals": places,
                "ticktext": [on_page(label) for label in self.labels],
                "autorange": "reversed",
                "automargin": True,
                "zeroline": False,
                "showgrid": False,
            },
        )
        return figure

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        width = options.max_width
        labels = [shown(label) for label in self.labels]
        margin = min(max(map(cell_len, [*labels, "scale"])), max(width // 4, 5))
        drawn = _drawn(self.values.shape[1], max(1, width - margin - 1))
        colored = console.color_system is not None and not console.no_color
        glyphs = COLORED if colored else PLAIN

        dimensions = f"{self.values.shape[1]:,} dimensions"
        if len(drawn) < self.values.shape[1]:
            dimensions = f"{len(drawn):,} of {dimensions}, evenly spread"
        yield Text.assemble((fitted("dim", margin) + " ", "bold"), (dimensions, "dim"))
        shares = self.values[:, drawn].astype(np.float64) / self.limit
        levels = np.clip(np.rint(shares * STEPS), -STEPS, STEPS).astype(int)
        for label, row in zip(labels, levels.tolist(), strict=True):
            line = Text(fitted(label, margin) + " ", no_wrap=True, overflow="crop")
            for level in row:
                line.append(glyphs[STEPS + level], _style(level))
            yield line
        yield from self._scale(glyphs, margin, width)
        for row in self.rows:
            if len(row.tokens) > 1:
                pieces = " ".join(map(shown, row.tokens))
                yield Text(f"{shown(row.word)} = mean of the rows of {pieces}", "dim")

    def _scale(self, glyphs: str, margin: int, width: int) -> Iterator[Text]:
        """From -limit to +limit on one line, or on two."""
        below, above = glyphs[:STEPS], glyphs[STEPS + 1 :]
        left = Text.assemble(f"-{self.limit:.3g} ", (below, NEGATIVE))
        right = Text.assemble((above, POSITIVE), f" +{self.limit:.3g}")
        beyond = float((np.abs(self.values) > self.limit).mean())
        rest = Text(f"   {beyond:.1%} lie beyond" if beyond else "", "dim")
        head = Text(fitted("scale", margin) + " ", "bold")
        if margin + 1 + left.cell_len + 3 + right.cell_len <= width:
            yield Text.assemble(head, left, "   ", right, rest)
        else:
            yield Text.assemble(left, no_wrap=True)
            yield Text.assemble(right, no_wrap=True)


def heatmap(
    table: Table,
    queries: str | int | Iterable[str | int | ArrayLike] | None = None,
    *,
    text: str | None = None,
) -> plotly.graph_objects.Figure:
    """Rows as colors, as a plotly figure: those of words, ids or vectors, or of a text's tokens.

    ``ShapeError`` if neither or both are given, ``MissingExtra`` without plotly; see ``Heatmap`` for others.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, -1, 0], [-0.5, 0.5, 0.25]], np.float32), Vocab(["cat", "dog"]))
    >>> heatmap(table, ["cat", "dog"]).data[0].z.shape
    (2, 3)
    """
    if queries is not None and text is None:
        return Heatmap.of(table, queries).figure()
    if text is not None and queries is None:
        return Heatmap.of_text(table, text).figure()
    raise ShapeError("a heat map shows words or a text: give one of queries and text")


def _limit(values: Float[Array, "K D"]) -> float:
    sizes = np.abs(values)
    return float(np.quantile(sizes, WITHIN, method="higher")) or float(sizes.max()) or 1.0


def _drawn(dimensions: int, room: int) -> Int[Array, " columns"]:
    """The dimensions that ``room`` columns can hold: all, or so many of them, evenly spread.

    Not means over neighbors: dimensions have no order, so that numbers of either sign would cancel out.

    >>> _drawn(4, 80), _drawn(10, 4)
    (array([0, 1, 2, 3]), array([0, 3, 6, 9]))
    """
    return np.rint(np.linspace(0, dimensions - 1, min(dimensions, room))).astype(int)


def _style(level: int) -> str:
    return POSITIVE if level > 0 else NEGATIVE if level < 0 else ""
