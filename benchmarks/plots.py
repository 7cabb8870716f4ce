"""The plots of results/: SVG without a background, in colors that a light and a dark page both show."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

from measure import Row
from report import RESULTS, read

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from every_size import Measured

GRAY = "#7a7a7a"  # 4.3 : 1 on white, 4.4 : 1 on a dark page
OURS, THEIRS, THIRD = "#0f8f6e", "#c9632b", "#6f7fd8"
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tokenspace",  # the same figures give the same file
    "font.family": "sans-serif",
    "font.size": 11.0,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GRAY),
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def draw(name: str) -> list[Path]:
    """Every plot that results/NAME.json has numbers for."""
    results = read(name)
    if results is None:
        return []
    _, rows = results
    drawn = []
    with mpl.rc_context(STYLE):
        for plot, figure in (
            ("ratios", _ratios(rows)),
            ("vocabulary", _vocabulary(rows)),
            ("one_hot", _one_hot(rows)),
        ):
            if figure is not None:
                path = RESULTS / f"{name}_{plot}.svg"
                figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
                drawn.append(path)
    return drawn


def _ratios(rows: list[Row]) -> Figure | None:
    """How many times as fast each claim is at each size, and the floor that is asked of it."""
    asked = [row for row in rows if row.asked is not None and not row.longer and row.ratio is not None]
    if not asked:
        return None
    labels = list(dict.fromkeys(_label(row) for row in asked))
    sizes = list(dict.fromkeys(row.size for row in asked))
    figure = Figure(figsize=(9.0, 0.75 * len(labels) + 1.0))
    axes = figure.add_subplot()
    for size, color, shift in zip(sizes, (OURS, THEIRS, THIRD), (-0.2, 0.0, 0.2), strict=False):
        of_size = [row for row in asked if row.size == size]
        places = [labels.index(_label(row)) + shift for row in of_size]
        axes.plot([row.ratio for row in of_size], places, "o", color=color, label=f"V × D, B × T: {size}")
    for place, label in enumerate(labels):
        for floor in {row.asked for row in asked if label == _label(row)}:
            axes.plot([floor, floor], [place - 0.35, place + 0.35], color=GRAY, linewidth=1.5)
    axes.plot([], [], color=GRAY, linewidth=1.5, label="asked, at least")
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if _within(tick, asked)]
    axes.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("times as fast (log scale)")
    axes.grid(axis="x", color=GRAY, alpha=0.25)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.3, -0.09), ncols=2)
    return figure


def _label(row: Row) -> str:
    return f"{row.claim}\nagainst {row.peer_name}".replace("`", "")


def _within(tick: float, rows: list[Row]) -> bool:
    shown = [value for row in rows for value in (row.ratio, row.asked)]
    return min(shown) / 1.5 <= tick <= max(shown) * 1.5


def _vocabulary(rows: list[Row]) -> Figure | None:
    growth = [row for row in rows if row.claim.startswith("step as V grows: ")]
    if not growth:
        return None
    figure = Figure(figsize=(7.0, 3.8))
    axes = figure.add_subplot()
    for row, color in zip(growth, (OURS, THIRD, THEIRS), strict=False):
        _line(axes, row.extra["V"], row.extra["ms"], row.claim.removeprefix("step as V grows: "), color)
    axes.set(xscale="log", yscale="log", xlabel="vocabulary rows V", ylabel="training step, ms")
    _ticks(axes, growth[0].extra["V"])
    axes.legend(frameon=False)
    return figure


def _one_hot(rows: list[Row]) -> Figure | None:
    found = next((row for row in rows if row.claim.startswith("one-hot")), None)
    if found is None:
        return None
    figure = Figure(figsize=(7.0, 3.8))
    axes = figure.add_subplot()
    _line(axes, found.extra["V"], found.extra["product"], "one-hot product", THEIRS)
    _line(axes, found.extra["V"], found.extra["lookup"], "lookup", OURS)
    axes.set(xscale="log", yscale="log", xlabel="vocabulary rows V", ylabel="forward, ms")
    _ticks(axes, found.extra["V"])
    axes.legend(frameon=False)
    return figure


def every_size(measured: list[Measured]) -> Path:
    """The ratio to torch eager by the number of tokens: a dot a cell, a line the median of each mode."""
    kinds = list(dict.fromkeys(each.kind for each in measured))
    path = RESULTS / "every_size.svg"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 3.6))
        panels = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, kinds, strict=True):
            for mode, color in (("evaluation", OURS), ("training", THEIRS)):
                cells = [each for each in measured if (each.kind, each.mode) == (kind, mode)]
                axes.plot([e.tokens for e in cells], [e.ratio for e in cells], ".", color=color, alpha=0.35)
                tokens = sorted({e.tokens for e in cells if not e.other})
                ratios = [[e.ratio for e in cells if e.tokens == count and not e.other] for count in tokens]
                axes.plot(tokens, list(map(statistics.median, ratios)), "-", color=color, label=mode)
            axes.axhline(1, color=GRAY, linewidth=1)
            axes.set(xscale="log", yscale="log", title=kind, xlabel="tokens")
            axes.set_yticks([0.5, 1, 2, 5, 10], ["0.5×", "1×", "2×", "5×", "10×"])
            axes.minorticks_off()
            axes.grid(color=GRAY, alpha=0.25)
        panels[0].set_ylabel("times as fast as torch eager")
        panels[-1].legend(frameon=False)
        figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
    return path


def _line(axes: Axes, V: list[int], times: list[list[float]], label: str, color: str) -> None:
    """Medians, with the quartiles as a band."""
    low, middle, high = zip(*times, strict=True)
    axes.fill_between(V, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(V, middle, "o-", color=color, label=label)


def _ticks(axes: Axes, V: list[int]) -> None:
    axes.set_xticks(V, [f"{rows:,}" for rows in V])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.minorticks_off()
    axes.grid(color=GRAY, alpha=0.25)
