"""A whole table as points: each row where a projection puts it, colored by what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, get_args

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from tokenspace.errors import ShapeError
from tokenspace.geometry import View
from tokenspace.geometry.clusters import Clusters, clusters
from tokenspace.geometry.kept import Kept, kept
from tokenspace.geometry.projection import Projection, ProjectionMethod, pca, project
from tokenspace.geometry.transform import Progress, seen
from tokenspace.plots.labels import on_page
from tokenspace.plots.norms import KINDS, Norms
from tokenspace.plots.page import plotly_objects
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table

if TYPE_CHECKING:
    import plotly.graph_objects

Color = Literal["kind", "cluster", "norm", "kept"]
COLORS: tuple[Color, ...] = get_args(Color)
HEIGHT = 20  # lines of the drawing in a terminal
_SHADES = " ·░▒▓█"
_PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#e07b00", "#8c564b", "#7f7f7f",
    "#17becf", "#6a51a3", "#b5bd3c", "#c51b8a", "#2f6f4f", "#d9a441", "#393b79", "#ff9da7", "#00a087",
    "#a03010", "#b0a0e0",
)  # fmt: skip
_SCALES = {"norm": "length of the row", "kept": "share of neighbors kept"}


@dataclass(frozen=True)
class Map:
    """Where each row of a table lies, and its color.

    - ``tokens``, ``projection``: of the V rows
    - ``color``: what the colors tell; ``values`` (V,) are its numbers: lengths, shares kept (NaN: not
      measured), or indices in ``groups``, of which -1 is no group
    - ``groups``: the kinds of token that there are, or the clusters' names; empty for a scale of numbers
    - ``made``: how the colors were computed, in plain JSON values

    ``figure()`` draws it with plotly, ``rich.print(map)`` how densely the points lie.
    """

    tokens: tuple[str, ...]
    projection: Projection
    color: Color
    values: Float[Array, " V"] | Int[Array, " V"]
    groups: tuple[str, ...]
    made: dict[str, Any]

    @classmethod
    def of(
        cls,
        table: Table | View,
        projection: Projection | None = None,
        color: Color = "kind",
        *,
        measured: Kept | None = None,
        grouped: Clusters | None = None,
        seed: SupportsIndex = 0,
        progress: Progress | None = None,
    ) -> Map:
        """The map of ``projection``, by default the PCA's; what the color needs is computed if not given.

        ``kind`` of token, ``cluster`` (see ``clusters``), ``norm`` (the row's Euclidean length), or ``kept``:
        the share of a row's ten nearest that are its nearest on the map too. ``ShapeError`` for another.
        """
        view = seen(table)
        if projection is None:
            projection = pca(view)
        if len(projection.coordinates) != len(view.table):
            raise ShapeError(
                f"a map of {len(projection.coordinates):,} points is not one of this table of "
                f"{len(view.table):,} rows"
            )
        values, groups, made = _colored(view, projection, color, measured, grouped, seed, progress)
        return cls(tuple(view.table.vocab), projection, color, values, groups, made)

    @property
    def title(self) -> str:
        """What was projected how: rows, switches, method, seed if chance has a part, color, and versions."""
        about = self.projection
        name = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}[about.method]
        seed = "" if about.method == "pca" else f", seed {about.seed}"
        color = {"kind": "kind of token", "cluster": "cluster"}.get(self.color) or _SCALES[self.color]
        versions = ", ".join(f"{package} {number}" for package, number in about.versions.items())
        rows = f"{len(self.tokens):,} rows{_switched(about)}"
        return f"{rows} by {name}{seed}; color: {color} ({versions})"

    def figure(self) -> plotly.graph_objects.Figure:
        """As a plotly figure, in 2 or 3 dimensions; ``MissingExtra`` without plotly.

        Pointing at a point tells its token and id. Groups can be hidden by their names in the legend.
        """
        objects = plotly_objects("a plotly figure")
        labels = np.array([on_page(token) for token in self.tokens], object)
        figure = objects.Figure([self._trace(objects, labels, *part) for part in self._parts()])
        first, *others = self.title.split(" (", 1)
        layout: dict[str, Any] = {
            "template": "none",
            "title": {"text": f"{first}<br><sup>{''.join(others).rstrip(')')}</sup>"},
            "hovermode": "closest",
            "height": 750,
            "legend": {"itemsizing": "constant"},
        }
        axes = dict(zip(("xaxis", "yaxis", "zaxis"), self.projection.axes, strict=False))
        if self.projection.dims == 3:
            layout["scene"] = {name: {"title": {"text": label}} for name, label in axes.items()}
            layout["scene"] |= {"aspectmode": "data", "camera": {"eye": {"x": 1.6, "y": 1.6, "z": 1.2}}}
        else:
            layout |= {name: {"title": {"text": label}, "zeroline": False} for name, label in axes.items()}
            layout["yaxis"] |= {"scaleanchor": "x", "automargin": True}
        figure.update_layout(**layout)
        return figure

    def _parts(self) -> Iterator[tuple[Int[Array, " rows"], str, dict[str, Any]]]:
        """(rows, name, marker) of each trace."""
        size = 3 if self.projection.dims == 3 or len(self.tokens) > 5_000 else 6
        if self.groups:
            for group, name in enumerate(("none", *self.groups), start=-1):
                rows = np.flatnonzero(self.values == group)
                if rows.size:
                    color = "#bbbbbb" if group < 0 else _PALETTE[group % len(_PALETTE)]
                    yield rows, f"{on_page(name)} ({rows.size:,})", {"size": size, "color": color}
            return
        known = np.isfinite(self.values)
        if not known.all():
            yield np.flatnonzero(~known), "not measured", {"size": size, "color": "#dddddd"}
        scale = {
            "size": size,
            "color": self.values[known],
            "colorscale": "Viridis",
            "colorbar": {"title": {"text": _SCALES[self.color]}},
        }
        if self.color == "kept":
            scale |= {"cmin": 0, "cmax": 1}
        yield np.flatnonzero(known), _SCALES[self.color], scale

    def _trace(
        self, objects: Any, labels: Any, rows: Int[Array, " rows"], name: str, marker: dict[str, Any]
    ) -> Any:
        points = self.projection.coordinates[rows]
        told = "%{text}<br>id %{customdata}"
        if not self.groups and name != "not measured":
            told += f"<br>{name} %{{marker.color:.3g}}"
        shared = {
            "x": points[:, 0],
            "y": points[:, 1],
            "mode": "markers",
            "text": labels[rows],
            "customdata": rows,
            "name": name,
            "marker": marker,
            "hovertemplate": told + ("<br>%{fullData.name}" if self.groups else "") + "<extra></extra>",
            "showlegend": bool(self.groups),
        }
        if self.projection.dims == 3:
            return objects.Scatter3d(z=points[:, 2], **shared)
        return objects.Scattergl(**shared)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """How many points lie in each place, by shades on a logarithmic scale; the first two axes."""
        x, y = self.projection.coordinates[:, 0], self.projection.coordinates[:, 1]
        counts, _, _ = np.histogram2d(-y, x, bins=(HEIGHT, max(1, min(options.max_width, 3 * HEIGHT))))
        most = np.log1p(counts.max())
        shades = np.ceil(np.log1p(counts) / (most or 1) * (len(_SHADES) - 1)).astype(int)
        yield Text(self.title, "bold")
        for line in shades.tolist():
            yield Text("".join(_SHADES[shade] for shade in line), "cyan", no_wrap=True)
        yield Text(f"right: {self.projection.axes[0]}; up: {self.projection.axes[1]}", "dim")
        if self.groups:
            sizes = np.bincount(self.values[self.values >= 0], minlength=len(self.groups)).tolist()
            for name, size in zip(self.groups, sizes, strict=True):
                if size:
                    yield Text(f"{size:>9,}  {name}")
        else:
            known = self.values[np.isfinite(self.values)]
            yield Text(
                f"{_SCALES[self.color]}: {known.min():.3g} to {known.max():.3g}, mean {known.mean():.3g}"
            )


def map(
    table: Table | View,
    method: ProjectionMethod = "pca",
    dims: SupportsIndex = 2,
    color: Color = "kind",
    seed: SupportsIndex = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> plotly.graph_objects.Figure:
    """All rows of a table as points of a plotly figure, in 2 or 3 dimensions.

    ``settings`` are those of ``geometry.pca``, ``tsne`` and ``umap`` (center, remove, perplexity, …). For
    colors see ``Map.of``. ``MissingExtra`` without plotly, or what the method or the color needs.

    >>> import tokenspace as ts
    >>> figure = ts.plots.map(ts.load("wordnet"), color="norm")
    >>> figure.data[0].x.shape, figure.layout.xaxis.title.text
    ((33003,), 'PC 1 (5.8 % of the variance)')
    """
    plotly_objects("a plotly figure")
    projection = project(table, method, dims, seed, progress=progress, **settings)
    return Map.of(table, projection, color, seed=seed).figure()


def _switched(about: Projection) -> str:
    """What was taken out of the rows, but for the mean by PCA, whose axes tell that."""
    if removed := about.settings.get("remove"):
        return f" without their top {f'{removed:,} directions' if removed > 1 else 'direction'}"
    return " about their mean" if about.settings.get("center") and about.method != "pca" else ""


def _colored(
    view: View,
    projection: Projection,
    color: Color,
    measured: Kept | None,
    grouped: Clusters | None,
    seed: SupportsIndex,
    progress: Progress | None,
) -> tuple[Any, tuple[str, ...], dict[str, Any]]:
    """The values, groups and record of a map's colors."""
    if color == "cluster":
        groups = grouped or clusters(view.table, seed=seed, progress=progress)
        return (
            groups.labels,
            groups.names,
            {"seed": groups.seed, **groups.settings, "versions": groups.versions},
        )
    if color == "kept":
        share = measured or kept(view, projection, seed=seed, progress=progress)
        record = {"k": share.k, "metric": share.metric, "measured": share.measured, "mean": share.mean}
        return share.share, (), record
    if color not in COLORS:
        raise ShapeError(f"color {color!r} is not known; allowed: {', '.join(COLORS)}")
    norms = Norms.of(view.table)
    if color == "norm":
        return norms.lengths.astype(np.float32), (), {}
    return norms.kinds.astype(np.int32), tuple(KINDS), {}
