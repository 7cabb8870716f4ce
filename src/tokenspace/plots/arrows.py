"""An analogy as two arrows: if a is to b as c is to d, then a → b and c → d are parallel and equally long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.geometry import Hit, View, analogy, cosine, unit_rows
from tokenspace.geometry.analogy import Method, one_token
from tokenspace.geometry.transform import seen
from tokenspace.plots.labels import on_page
from tokenspace.plots.page import plotly_objects
from tokenspace.shapes import Array, Float
from tokenspace.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects

_COLORS = ("#1f77b4", "#d62728")


@dataclass(frozen=True)
class Arrows:
    """The unit rows of a, b, c and the best answer d, in the plane that lies nearest to the four.

    - ``words``: the tokens of a, b, c, d; ``ids``: their rows, None for a word made of n-grams
    - ``points``: (5, 2): a, b, c, d, and where d would be if the arrows were one: b - a + c
    - ``axes``: a label for each axis, with its share of the four's squared distances from their mean
    - ``plane_share``: the share of the two arrows' squared lengths that lies in the plane
    - ``cosine``: between the two arrows, in all dimensions: 1 if they are parallel
    - ``hits``: all answers, best first
    """

    words: tuple[str, ...]
    ids: tuple[int | None, ...]
    points: Float[Array, "5 2"]
    axes: tuple[str, str]
    plane_share: float
    cosine: float
    hits: tuple[Hit, ...]

    @classmethod
    def of(
        cls,
        table: Table | View,
        a: str | int,
        b: str | int,
        c: str | int,
        method: Method = "3cosadd",
        center: bool = False,
        remove: SupportsIndex = 0,
        k: int = 5,
    ) -> Arrows:
        """Ask ``analogy`` and draw its best answer; errors are its own, and ``ShapeError`` if it has none."""
        view = seen(table, center, remove)
        hits = analogy(view, a, b, c, k, method)
        if not hits:
            raise ShapeError("the table has no fourth row that could answer the analogy")
        found = [one_token(view, word) for word in (a, b, c, hits[0].id)]
        units = unit_rows(np.stack([vector for _, vector in found])).astype(np.float64)
        target = units[1] - units[0] + units[2]
        middle = units.mean(axis=0)
        _, spread, directions = np.linalg.svd(units - middle, full_matrices=False)
        plane = directions[:2] if len(directions) > 1 else np.vstack([directions, np.zeros_like(directions)])
        first, second = units[1] - units[0], units[3] - units[2]
        plane = (
            plane * np.where(plane @ (first + second) < 0, -1.0, 1.0)[:, None]
        )  # b is right of a, and above
        shares = np.append(np.square(spread), 0)[:2] / max(float(np.square(spread).sum()), 1e-30)
        lengths = float(first @ first + second @ second)
        within = float(np.square(plane @ first).sum() + np.square(plane @ second).sum())
        return cls(
            tuple(word.tokens[0] if word.ids else word.word for word, _ in found),
            tuple(word.ids[0] if word.ids else None for word, _ in found),
            ((np.vstack([units, target]) - middle) @ plane.T).astype(np.float32),
            (_axis(1, shares[0]), _axis(2, shares[1])),
            min(1.0, within / lengths) if lengths else 1.0,
            float(cosine(first, second)),
            tuple(hits),
        )

    def figure(self) -> plotly.graph_objects.Figure:
        """As a plotly figure, equal scales on both axes; ``MissingExtra`` without plotly."""
        objects = plotly_objects("a plotly figure")
        names = [on_page(word) for word in self.words]
        figure = objects.Figure()
        for (start, end), color in zip(((0, 1), (2, 3)), _COLORS, strict=True):
            ends = self.points[[start, end]]
            figure.add_trace(
                objects.Scatter(
                    x=ends[:, 0],
                    y=ends[:, 1],
                    mode="lines+markers+text",
                    text=[names[start], names[end]],
                    textposition="top center",
                    marker={"symbol": ["circle", "arrow"], "size": [8, 16], "angleref": "previous"},
                    line={"color": color, "width": 2},
                    hovertemplate="%{text}<extra></extra>",
                    name=f"{names[start]} → {names[end]}",
                )
            )
        figure.add_trace(
            objects.Scatter(
                x=self.points[4:, 0],
                y=self.points[4:, 1],
                mode="markers",
                marker={"symbol": "x-thin", "size": 12, "line": {"width": 2, "color": "#555555"}},
                hovertemplate="%{fullData.name}<extra></extra>",
                name=f"{names[1]} − {names[0]} + {names[2]}",
            )
        )
        a, b, c, d = names
        title = (
            f"{a} is to {b} as {c} is to {d}<br><sup>{self.plane_share:.0%} of the arrows' squared lengths "
            f"lie in this plane; their cosine in all dimensions is {self.cosine:.2f}</sup>"
        )
        figure.update_layout(
            template="none",
            title=title,
            xaxis={"title": self.axes[0], "zeroline": False},
            yaxis={"title": self.axes[1], "zeroline": False, "scaleanchor": "x", "automargin": True},
            legend={"orientation": "h", "y": -0.2},
            height=600,
        )
        return figure


def arrows(
    table: Table | View,
    a: str | int,
    b: str | int,
    c: str | int,
    method: Method = "3cosadd",
    center: bool = False,
    remove: SupportsIndex = 0,
) -> plotly.graph_objects.Figure:
    """The analogy a : b = c : ? as two arrows, as a plotly figure; ``MissingExtra`` without plotly.

    >>> import tokenspace as ts
    >>> arrows(ts.load("wordnet"), "man", "king", "woman").data[1].name
    'woman → queen'
    """
    return Arrows.of(table, a, b, c, method, center, remove).figure()


def _axis(number: int, share: float) -> str:
    return f"axis {number} of the plane ({100 * share:.1f} % of the four's spread)"
