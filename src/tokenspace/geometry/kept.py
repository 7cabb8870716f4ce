"""How honest a map is, point by point: the share of a row's neighbors that are its neighbors on the map too.

Venna & Kaski (2001) and Lee & Verleysen (2009) measure projections so; here every point keeps its own share,
so that a map can be colored by where it may be trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry.nearest import Nearest, nearest
from tokenspace.geometry.projection import Projection, checked_seed, stage
from tokenspace.geometry.scores import Metric, check_k
from tokenspace.geometry.transform import Progress, View, seen
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table

LIMIT = 60_000  # rows that are all measured; of more, a sample
SAMPLE = 10_000


@dataclass(frozen=True)
class Kept:
    """The share (V,) of each row's ``k`` nearest rows that are among its ``k`` nearest points on the map.

    NaN where it was not measured: rows that no token names, and all but a sample of a large table.
    ``measured`` counts those that were.
    """

    share: Float[Array, " V"]
    k: int
    metric: Metric
    measured: int
    seed: int

    @property
    def mean(self) -> float:
        """The mean share of the measured rows."""
        return float(np.nanmean(self.share, dtype=np.float64))


def kept(
    table: Table | View,
    projection: Projection,
    k: int = 10,
    metric: Metric = "cosine",
    seed: SupportsIndex = 0,
    limit: int = LIMIT,
    progress: Progress | None = None,
    known: Nearest | None = None,
) -> Kept:
    """How much of each row's neighborhood in ``table`` the map of ``projection`` keeps.

    Exact for every row of up to ``limit``; of more, 10,000 drawn by ``seed`` are measured, each among all.
    The neighbors are those of ``nearest`` (rows that no token names don't count), on the map by Euclidean
    distance. ``known`` is the table's ``nearest`` by ``metric`` of every row, ``k`` or more, if it has been
    computed. ``ShapeError`` unless the map is the table's; ``MissingExtra`` without SciPy.

    >>> import tokenspace as ts
    >>> from tokenspace.geometry.projection import pca
    >>> table = ts.load("wordnet")
    >>> small = ts.Table(table.lookup(range(500)), table.vocab.take(np.arange(500)))
    >>> kept(small, pca(small, dims=3)).mean > kept(small, pca(small, dims=2)).mean
    True
    """
    check_k(k)
    seed = checked_seed(seed)
    view = seen(table)
    rows = len(view.table)
    if len(projection.coordinates) != rows:
        raise ShapeError(
            f"a map of {len(projection.coordinates):,} points is not one of this table of {rows:,} rows"
        )
    named = np.setdiff1d(np.arange(rows), view.table.vocab.placeholders())
    k = min(k, len(named) - 1)
    if k < 1:
        raise ShapeError("a table of one token has no neighbors to keep")
    asked = named
    if len(named) > limit:
        asked = np.sort(np.random.default_rng(seed).choice(named, min(SAMPLE, limit), replace=False))
    if known is None:
        true = nearest(view, asked, k, metric, progress=stage(progress, 0.0, 0.9)).ids
    else:
        if known.ids.shape[0] != rows or known.ids.shape[1] < k:
            raise ShapeError(
                f"known must hold {k:,} or more neighbors of each of the {rows:,} rows, "
                f"found shape {known.ids.shape}"
            )
        true = known.ids[asked, :k]
    drawn = _on_map(projection.coordinates, named, asked, k)
    share = np.full(rows, np.nan, np.float32)
    for start in range(0, len(asked), max(1, 2**22 // k**2)):
        part = slice(start, start + max(1, 2**22 // k**2))
        both = (true[part, :, None] == drawn[part, None, :]).any(axis=2)
        share[asked[part]] = both.sum(axis=1) / k
    stage(progress, 0.9, 1.0)(1, 1)
    return Kept(share, k, metric, len(asked), seed)


def _on_map(
    coordinates: Float[Array, "V dims"], named: Int[Array, " rows"], asked: Int[Array, " N"], k: int
) -> Int[Array, "N K"]:
    """The ids of the ``k`` named points nearest to each of ``asked`` on the map, itself left out."""
    try:
        from scipy.spatial import cKDTree
    except ImportError:
        raise MissingExtra("the share of neighbors kept", "look") from None
    _, places = cKDTree(coordinates[named]).query(coordinates[asked], k + 1)
    ids = named[places]
    itself = ids == asked[:, None]
    itself[~itself.any(axis=1), -1] = True  # k + 1 others lie on its very place: the last one goes
    return ids[~itself].reshape(len(asked), k)
