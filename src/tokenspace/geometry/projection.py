"""A table's rows as points in 2 or 3 dimensions: what a map shows.

``pca`` is exact and keeps the directions of largest variance. ``tsne`` and ``umap`` keep neighborhoods; their
axes mean nothing, nor do distances between clusters. Both start from exact neighbors by cosine and from the
PCA, and run on one thread, so that the same table, seed and versions give the same bits on the same machine.
"""

from __future__ import annotations

import importlib.util
import operator
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, SupportsFloat, SupportsIndex, get_args

import numpy as np

from tokenspace import __version__
from tokenspace.errors import MissingExtra, ShapeError
from tokenspace.geometry.nearest import nearest
from tokenspace.geometry.transform import Principal, Progress, View, principal, seen
from tokenspace.shapes import Array, Float, Int
from tokenspace.table import Table

ProjectionMethod = Literal["pca", "tsne", "umap"]
METHODS: tuple[ProjectionMethod, ...] = get_args(ProjectionMethod)
_PACKAGES = {"tsne": ("openTSNE", "openTSNE"), "umap": ("umap", "umap-learn")}
_NAMES = {"tsne": "t-SNE", "umap": "UMAP"}
LARGE = 60_000  # rows, above which neighbors are found among principal components
COMPONENTS = 50
STEPS = 1_000  # of progress
FFT_PAYS = 10_000  # rows, above which openTSNE interpolates forces on a grid, and takes no tree
PERPLEXITY = 30.0  # unless the table is too small for it
NEIGHBORS = 15
EARLY = 250  # t-SNE's iterations of early exaggeration (van der Maaten & Hinton 2008, §3.4)


@dataclass(frozen=True)
class Projection:
    """Where each row of a table lies on a map, and all that it takes to make the same map again.

    - ``coordinates``: (V, dims) float32
    - ``method``, ``seed``, ``settings``: ``pca`` has no chance in it and ignores the seed
    - ``axes``: a label for each dimension
    - ``versions``: of the packages that computed it
    """

    coordinates: Float[Array, "V dims"]
    method: ProjectionMethod
    seed: int
    settings: dict[str, Any]
    axes: tuple[str, ...]
    versions: dict[str, str]

    @property
    def dims(self) -> int:
        """The dimensions of the map: 2 or 3."""
        return self.coordinates.shape[1]

    def provenance(self) -> dict[str, Any]:
        """How it was made, in plain JSON values."""
        return {
            "method": self.method,
            "dims": self.dims,
            "seed": self.seed,
            "settings": dict(self.settings),
            "axes": list(self.axes),
            "versions": dict(self.versions),
        }


def available() -> dict[str, bool]:
    """Which methods can run here: those whose packages are installed."""
    return {
        name: name == "pca" or importlib.util.find_spec(_PACKAGES[name][0]) is not None for name in METHODS
    }


def project(
    table: Table | View,
    method: ProjectionMethod = "pca",
    dims: SupportsIndex = 2,
    seed: SupportsIndex = 0,
    center: bool | None = None,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Projection:
    """``pca``, ``tsne`` or ``umap`` by name; ``center=None`` is the method's own default.

    ``ShapeError`` for another name.
    """
    switches: dict[str, Any] = {"remove": remove, "progress": progress, **settings}
    if center is not None:
        switches["center"] = center
    if method == "pca":
        return pca(table, dims, seed=seed, **switches)
    if method == "tsne":
        return tsne(table, dims, seed, **switches)
    if method == "umap":
        return umap(table, dims, seed, **switches)
    raise ShapeError(f"method {method!r} is not known; allowed: {', '.join(METHODS)}")


def pca(
    table: Table | View,
    dims: SupportsIndex = 2,
    center: bool = True,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
    seed: SupportsIndex = 0,
) -> Projection:
    """The rows along the directions in which they vary most (Pearson 1901), computed exactly in float64.

    With ``center`` (a view is centered about its own mean) variance is about the mean row, else about 0.
    ``remove`` leaves out that many top directions. The axes say each direction's share of the variance.
    Each direction's largest component is positive, so that maps of one table never lie mirrored. Rows that no
    token names count like any other.

    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[3, 0], [-3, 0], [0, 1], [0, -1]], np.float32), Vocab(["a", "b", "c", "d"]))
    >>> projection = pca(table)
    >>> projection.axes
    ('PC 1 (90.0 % of the variance)', 'PC 2 (10.0 % of the variance)')
    """
    dims, seed = _dims(dims), checked_seed(seed)
    view = seen(table, remove=remove)
    left = min(view.table.weight.shape) - view.remove
    if left < dims:
        without = f" without {view.remove} of them" if view.remove else ""
        raise ShapeError(
            f"a table of {len(view.table):,} × {view.table.dim:,} has no {dims} directions to show{without}; "
            f"ask for fewer dims{' or remove fewer' if view.remove else ''}"
        )
    found = principal(view, dims, center, progress)
    shares = [float(share) for share in found.variances / (found.total or 1.0)]
    centered = bool(center) or view.center
    whole = "variance" if centered else "squared length"
    if view.remove:
        whole += f" left after {view.remove}"
    axes = (f"PC {n} ({100 * share:.1f} % of the {whole})" for n, share in enumerate(shares, 1 + view.remove))
    return Projection(
        _along(view, found),
        "pca",
        seed,
        {"center": centered, "remove": view.remove, "shares": shares},
        tuple(axes),
        {"tokenspace": __version__, "numpy": np.__version__},
    )


def tsne(
    table: Table | View,
    dims: SupportsIndex = 2,
    seed: SupportsIndex = 0,
    perplexity: SupportsFloat | None = None,
    iterations: SupportsIndex = 500,
    center: bool = False,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
) -> Projection:
    """t-SNE (van der Maaten & Hinton 2008) by openTSNE, of cosine distances between rows.

    ``perplexity`` is about the number of neighbors that each point tries to keep; three times as many are
    found, exactly. By default it is 30, or a third of the other rows of a table that has fewer than 91; the
    settings say which. ``iterations`` follow 250 of early exaggeration (openTSNE's own numbers); points
    spread as they go on, and each takes longer. It starts from the PCA, scaled down.
    ``MissingExtra`` without openTSNE; ``ShapeError`` if the table has too few rows for the perplexity.
    """
    dims, seed, iterations = _dims(dims), checked_seed(seed), _positive("iterations", iterations)
    view = seen(table, center, remove)
    room = (len(view.table) - 1) / 3
    if room < 1:
        raise ShapeError(f"t-SNE needs a table of 4 rows or more, found {len(view.table):,}; pca takes 2")
    perplexity = min(PERPLEXITY, float(int(room))) if perplexity is None else float(perplexity)
    if not 1 <= perplexity <= room:
        raise ShapeError(
            f"perplexity must lie from 1 to {room:.4g}, a third of the other rows; found {perplexity}"
        )
    _needed("tsne")
    import openTSNE
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    found, distances, space = _neighborhoods(view, int(3 * perplexity), stage(progress, 0.0, 0.4))
    affinities = openTSNE.affinity.PerplexityBasedNN(
        perplexity=perplexity, knn_index=PrecomputedNeighbors(found, distances), n_jobs=1
    )
    start = pca(view, dims).coordinates.astype(np.float64)
    start *= 1e-4 / max(float(start[:, 0].std()), 1e-30)
    start += np.random.default_rng(seed).normal(0, 1e-6, start.shape)  # parts rows that are equal
    embedding = openTSNE.TSNEEmbedding(
        start,
        affinities,
        random_state=seed,
        n_jobs=1,
        negative_gradient_method="fft" if dims < 3 and len(start) > FFT_PAYS else "bh",
    )
    for count, done, how in (
        (EARLY, 0, {"exaggeration": 12, "momentum": 0.5}),
        (iterations, EARLY, {"momentum": 0.8}),
    ):
        report = _Iterations(stage(progress, 0.4, 1.0), done, EARLY + iterations)
        embedding.optimize(
            count, inplace=True, verbose=False, callbacks=report, callbacks_every_iters=10, **how
        )
    settings = {"perplexity": perplexity, "iterations": iterations, "neighbors_in": space}
    return _neighborly("tsne", view, np.asarray(embedding), seed, settings)


def umap(
    table: Table | View,
    dims: SupportsIndex = 2,
    seed: SupportsIndex = 0,
    neighbors: SupportsIndex | None = None,
    min_dist: SupportsFloat = 0.1,
    center: bool = False,
    remove: SupportsIndex = 0,
    progress: Progress | None = None,
) -> Projection:
    """UMAP (McInnes, Healy & Melville 2018) by umap-learn, of cosine distances between rows.

    ``neighbors`` of each row, itself among them, are found and kept near: by default 15, or all but one row
    of a table of fewer than 16; the settings say which. Points lie about ``min_dist`` apart or more.
    ``MissingExtra`` without umap-learn; ``ShapeError`` if the table has too few rows.
    """
    dims, seed = _dims(dims), checked_seed(seed)
    view = seen(table, center, remove)
    if len(view.table) < 3:
        raise ShapeError(f"UMAP needs a table of 3 rows or more, found {len(view.table):,}")
    usual = min(NEIGHBORS, len(view.table) - 1)
    count = usual if neighbors is None else _positive("neighbors", neighbors)
    if not 2 <= count < len(view.table):
        raise ShapeError(f"neighbors must lie from 2 to {len(view.table) - 1:,}, found {count:,}")
    min_dist = float(min_dist)
    if not 0 <= min_dist <= 1:
        raise ShapeError(f"min_dist must lie from 0 to 1, found {min_dist}")
    _needed("umap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # that it lacks TensorFlow for another class
        import umap as umap_learn

    found, distances, space = _neighborhoods(view, count - 1, stage(progress, 0.0, 0.5))
    itself = np.arange(len(view.table))[:, None]
    start = pca(view, dims).coordinates
    flat = np.ptp(start, axis=0) == 0  # equal rows, or all on a line: UMAP divides by how far the start goes
    start[:, flat] = np.random.default_rng(seed).normal(size=(len(start), np.count_nonzero(flat)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that new points could not be placed: there are none
        reducer = umap_learn.UMAP(
            n_components=dims,
            n_neighbors=count,
            min_dist=min_dist,
            metric="euclidean",  # of the distances given, which are cosine distances
            init=start,
            random_state=seed,
            n_jobs=1,
            precomputed_knn=(np.hstack([itself, found]), np.pad(distances, ((0, 0), (1, 0)))),
        )
        coordinates = reducer.fit_transform(start)  # with neighbors given, only its number of rows counts
    if progress is not None:
        progress(STEPS, STEPS)
    settings = {"neighbors": count, "min_dist": min_dist, "neighbors_in": space}
    return _neighborly("umap", view, coordinates, seed, settings)


def _neighborhoods(
    view: View, k: int, progress: Progress | None
) -> tuple[Int[Array, "V K"], Float[Array, "V K"], str]:
    """The ``k`` nearest of each row, their cosine distances, and the space in which they were found.

    Above ``LARGE`` rows that is the first 50 principal components, where a product costs a tenth.
    """
    space = "all dimensions"
    if len(view.table) > LARGE and view.table.dim > COMPONENTS:
        points = _along(view, principal(view, COMPONENTS))
        view, space = View(Table(points, view.table.vocab)), f"{COMPONENTS} principal components"
    found = nearest(view, k=k, progress=progress, unnamed=True)
    return found.ids, np.maximum(1 - found.scores, 0).astype(np.float32), space


def _along(view: View, found: Principal) -> Float[Array, "V n"]:
    """Each row's coordinates along the directions."""
    points = np.empty((len(view.table), len(found.directions)), np.float32)
    for start, rows in view.blocks():
        points[start : start + len(rows)] = (rows - found.mean) @ found.directions.T
    return points


def _neighborly(
    method: ProjectionMethod,
    view: View,
    coordinates: Float[Array, "V dims"],
    seed: int,
    settings: dict[str, Any],
) -> Projection:
    _, package = _PACKAGES[method]
    return Projection(
        coordinates.astype(np.float32),
        method,
        seed,
        {"center": view.center, "remove": view.remove, **settings},
        tuple(f"{_NAMES[method]} {n}" for n in range(1, coordinates.shape[1] + 1)),
        {"tokenspace": __version__, "numpy": np.__version__, package: version(package)},
    )


class _Iterations:
    """What openTSNE calls every ten iterations."""

    def __init__(self, progress: Progress, done: int, total: int):
        self._progress, self._done, self._total = progress, done, total

    def __call__(self, iteration: int, error: float, embedding: Any) -> None:
        self._progress(self._done + iteration, self._total)


def stage(progress: Progress | None, first: float | int, last: float | int) -> Progress:
    """A part of the work, from ``first`` to ``last`` of it, told as steps of ``STEPS``."""

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(round(STEPS * (first + (last - first) * done / total)), STEPS)

    return tell


def _needed(method: str) -> None:
    module, _ = _PACKAGES[method]
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(_NAMES[method], method)


def _dims(dims: SupportsIndex) -> int:
    count = _positive("dims", dims)
    if count not in (2, 3):
        raise ShapeError(f"a map has 2 or 3 dimensions, found {count:,}")
    return count


def checked_seed(seed: SupportsIndex) -> int:
    """``seed`` as NumPy, scikit-learn and openTSNE take it; ``ShapeError`` for what they don't."""
    number = _whole(seed)
    if not 0 <= number < 2**32:
        raise ShapeError(f"the seed must be a whole number from 0 to 2^32 - 1, found {seed!r}")
    return number


def _positive(name: str, value: SupportsIndex) -> int:
    number = _whole(value)
    if number < 1:
        raise ShapeError(f"{name} must be a whole number from 1 on, found {value!r}")
    return number


def _whole(value: SupportsIndex) -> int:
    try:
        return -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return -1
