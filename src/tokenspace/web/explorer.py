"""What the page asks of a table, one method a question; every answer is plain JSON values.

Words, ids and numbers arrive as a person or a stranger sent them: each method checks what it takes, and
``TokenspaceError`` says what was wrong. All may be called from several threads at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any, get_args

import numpy as np

from tokenspace import __version__, formats
from tokenspace.errors import CheckpointError, ShapeError, TokenspaceError, VocabError
from tokenspace.geometry.analogy import Method
from tokenspace.geometry.clusters import Clusters, clusters
from tokenspace.geometry.compose import Resolved, resolve
from tokenspace.geometry.kept import LIMIT, Kept, kept
from tokenspace.geometry.nearest import Nearest, nearest
from tokenspace.geometry.neighbors import neighbors
from tokenspace.geometry.projection import Projection, available, project, stage
from tokenspace.geometry.scores import Hit, Metric
from tokenspace.geometry.similarity import similarity
from tokenspace.plots import Heatmap, Norms
from tokenspace.plots.arrows import Arrows
from tokenspace.plots.norms import KINDS
from tokenspace.shown import number
from tokenspace.table import Table
from tokenspace.walk import Pipeline
from tokenspace.web import limits, walks
from tokenspace.web.answers import packed
from tokenspace.web.facts import facts
from tokenspace.web.first_words import first_text, first_words
from tokenspace.web.jobs import Jobs, Progress, Running
from tokenspace.web.limits import check_row, check_word, one_of, within
from tokenspace.web.plotly_script import has_plotly
from tokenspace.web.spelling import Spellings, alike, as_shown
from tokenspace.web.views import Views

NEIGHBORS = 10  # that a map's honesty asks for
UNASKED = 2  # directions removed

Answer = dict[str, Any]
Word = str | int  # as typed, or a row's id


class Explorer:
    """Answers the page's questions about ``table``.

    ``own`` is a checkpoint's layer; without it the walk sets the table under ``recipe``. ``seed`` draws what
    a recipe learns and a plain table lacks. ``note`` is told with the table's facts.

    >>> explorer = Explorer.open("wordnet")
    >>> [hit["token"] for hit in explorer.neighbors("king", k=2)["hits"]]
    ['assyria', 'judah']
    """

    def __init__(
        self,
        table: Table,
        own: Pipeline | None = None,
        name: str = "table",
        recipe: str | None = None,
        seed: int = 0,
        note: str | None = None,
    ):
        self.table = table
        self.name = name
        self.note = note
        self.walks = walks.Walks(table, own, recipe, seed)
        self._views = Views(table)
        self._jobs = Jobs()
        self._lock = threading.Lock()
        self._norms: Norms | None = None
        self._spellings: Spellings | None = None
        self._first: dict[str, str | list[str]] | None = None

    @classmethod
    def open(
        cls, source: str | os.PathLike[str] = "wordnet", recipe: str | None = None, seed: int = 0
    ) -> Explorer:
        """Open a table (see ``formats.load``); a checkpoint of a known family walks through its own layer."""
        place = formats.located(source)
        own, note = None, None
        if recipe is None and os.path.isdir(place) and formats.sniff(place) == "checkpoint":
            try:
                own = Pipeline.open(place)
            except VocabError:
                pass  # no tokenizer: its rows can be looked at all the same
            except CheckpointError as error:
                note = f"its own layer can't be set up: {error}"
        table = formats.load(place) if own is None else own.table
        named = source in formats.BUILT_IN or str(source).startswith("hf:")
        name = str(source) if named else place.absolute().name
        return cls(table, own, name, recipe, seed, note)

    def warm(self) -> None:
        """Compute what the page and its first queries need, in a thread, before it is asked for. The rows as
        they are come last: whoever asks about them earlier computes what that takes in little time.

        What is wrong with a table is told to who asks.
        """

        def read() -> None:
            with contextlib.suppress(TokenspaceError):
                self.norms()
                for center, remove in dict.fromkeys([(True, 0), (True, self._removed), (False, 0)]):
                    self.neighbors(0, 1, center=center, remove=remove)

        threading.Thread(target=read, name="tokenspace warm-up", daemon=True).start()

    def facts(self) -> Answer:
        """What the table is."""
        table = self.table
        recipes = self.walks.recipes
        if self._first is None:
            self._first = {"words": first_words(table), "text": first_text(table)}
        return {
            "name": self.name,
            "rows": len(table),
            "named": len(table) - len(table.vocab.placeholders()),
            "dim": table.dim,
            "dtype": str(table.weight.dtype),
            "tokenizer": None if table.tokenizer is None else table.tokenizer.kind,
            "encoding": table.vocab.encoding,
            "recipe": self.walks.recipe,
            "recipes": recipes,
            "pairs": bool(recipes and recipes[0]["pairs"]),
            "walk": self.walks.why_not,
            "note": self.note,
            "provenance": facts(table.provenance),
            "methods": available(),
            "kinds": list(KINDS),
            "plotly": has_plotly(),
            "offline": False,
            "examples": [],
            "defaults": {**self._first, "remove": self._removed},
            "limits": {
                "text": walks.LONGEST_TEXT,
                "tokens": walks.MOST_TOKENS,
                "word": limits.LONGEST_WORD,
                "k": limits.MOST_HITS,
                "rows": limits.MOST_ROWS,
                "remove": self._removable,
                "clusters": limits.MOST_CLUSTERS,
            },
            "version": __version__,
        }

    def tokens(self) -> Answer:
        """Every token, its kind, its row's length, and whether it only stands for a row without one; and the
        ids of those spelled as text, whatever the encoding.
        """
        norms = self.norms()
        placeholder = np.zeros(len(self.table), np.uint8)
        placeholder[self.table.vocab.placeholders()] = 1
        return {
            "tokens": list(self.table.vocab),
            "kind": packed(norms.kinds, "u8"),
            "norm": packed(norms.lengths),
            "placeholder": packed(placeholder, "u8"),
            "verbatim": sorted((*self.table.vocab.special, *self.table.vocab.added)),
        }

    def norms(self) -> Norms:
        """The rows' lengths and the tokens' kinds, computed once."""
        with self._lock:
            if self._norms is None:
                self._norms = Norms.of(self.table)
            return self._norms

    def walk(
        self,
        text: str,
        pair: str | None = None,
        recipe: str | None = None,
        predict: bool = False,
        gradient: bool = False,
    ) -> Answer:
        """A text's way through the layer; see ``Walks.document``."""
        return self.walks.document(text, pair, recipe, predict, gradient)

    def map(
        self,
        method: str = "pca",
        dims: int = 2,
        seed: int = 0,
        center: bool | None = None,
        remove: int = 0,
    ) -> Answer | Running:
        """Each row's place on a map."""
        asked = self._map_asked(method, dims, seed, center, remove)
        made = self._jobs.result(asked, lambda progress: self._projected(asked, progress))
        if isinstance(made, Running):
            return made
        projection, seconds = made
        return {
            **projection.provenance(),
            "axes": list(projection.axes),
            "points": [packed(axis) for axis in projection.coordinates.T],
            "seconds": round(seconds, 3),
        }

    def clusters(self, k: int | None = None, seed: int = 0) -> Answer | Running:
        """Groups of rows, each named by the tokens nearest its center; ``k`` is by default the library's."""
        if k is not None:
            within(limits.CLUSTERS, k, 1, min(limits.MOST_CLUSTERS, len(self.table)))
        within("seed", seed, 0, limits.LARGEST_SEED)

        def compute(progress: Progress) -> Clusters:
            return clusters(self.table, k, seed, progress=progress)

        made = self._jobs.result(("clusters", k, seed), compute)
        if isinstance(made, Running):
            return made
        groups = zip(made.names, made.sizes.tolist(), made.nearest.tolist(), strict=True)
        return {
            "k": len(made.names),
            "seed": made.seed,
            "label": packed(made.labels, "i32"),
            "clusters": [
                {"name": name, "size": size, "tokens": [self._token(i) for i in near if i >= 0]}
                for name, size, near in groups
            ],
            "settings": made.settings,
            "versions": made.versions,
        }

    def kept(
        self,
        method: str = "pca",
        dims: int = 2,
        seed: int = 0,
        center: bool | None = None,
        remove: int = 0,
        k: int = NEIGHBORS,
    ) -> Answer | Running:
        """The share of each row's ``k`` nearest that are its nearest on the map, too."""
        asked = self._map_asked(method, dims, seed, center, remove)
        within(limits.HOW_MANY, k, 1, 100)

        def compute(progress: Progress) -> Kept:
            projection, _ = self._jobs.done(asked, lambda: self._projected(asked, progress))
            known = self.nearest(k, stage(progress, 0.0, 0.9)) if len(self.table) <= LIMIT else None
            return kept(self._views.under(), projection, k=k, progress=progress, known=known)

        made = self._jobs.result(("kept", asked, k), compute)
        if isinstance(made, Running):
            return made
        share = np.where(np.isnan(made.share), np.float32(-1), made.share)
        return {
            "share": packed(share),
            "mean": number(made.mean),
            "k": made.k,
            "measured": made.measured,
            "metric": made.metric,
        }

    def nearest(self, k: int, progress: Progress | None = None) -> Nearest:
        """The ``k`` nearest of every row, as a map's honesty and a page in a file need them: sought once."""
        most = max(k, NEIGHBORS)

        def search() -> Nearest:
            return nearest(self._views.under(), k=most, progress=progress)

        found = self._jobs.done(("nearest", most), search)
        return Nearest(found.ids[:, :k], found.scores[:, :k])

    def neighbors(
        self, word: Word, k: int = 10, metric: Metric = "cosine", center: bool = False, remove: int = 0
    ) -> Answer:
        """The rows nearest to a word's, or to the row of an id."""
        within(limits.HOW_MANY, k, 1, limits.MOST_HITS)
        one_of("metric", metric, get_args(Metric))
        found = self._resolved(word)
        hits = neighbors(self._view(center, remove), _query(found), k, metric=metric)
        return {
            "query": {**self._described(found), "zero": not found.vector.any()},
            "hits": _hits(hits),
            "settings": {"metric": metric, "center": center or remove > 0, "remove": remove, "k": k},
        }

    def analogy(
        self,
        a: Word,
        b: Word,
        c: Word,
        k: int = 5,
        method: Method = "3cosadd",
        center: bool = False,
        remove: int = 0,
    ) -> Answer:
        """a is to b as c is to what? With the plane that the three rows and the answer lie nearest to."""
        within(limits.HOW_MANY, k, 1, limits.MOST_HITS)
        one_of("method", method, get_args(Method))
        first, second, third = (_query(self._resolved(word)) for word in (a, b, c))
        drawn = Arrows.of(self._view(center, remove), first, second, third, method, k=k)
        names = ("a", "b", "c", "d", "target")
        return {
            "hits": _hits(drawn.hits),
            "words": {
                name: {"token": token, "id": i, "also": [] if i is None else self._also(i)}
                for name, token, i in zip(names, drawn.words[:3], drawn.ids[:3], strict=False)
            },
            "arrows": {
                "points": {
                    name: [number(x) for x in point] for name, point in zip(names, drawn.points, strict=True)
                },
                "axes": list(drawn.axes),
                "plane_share": number(drawn.plane_share),
                "cosine": number(drawn.cosine),
            },
            "settings": {"method": method, "center": center or remove > 0, "remove": remove, "k": k},
        }

    def similarity(self, a: Word, b: Word, center: bool = False, remove: int = 0) -> Answer:
        """How near two rows lie."""
        left, right = self._resolved(a), self._resolved(b)
        found = similarity(self._view(center, remove), _query(left), _query(right))
        return {
            **{name: number(getattr(found, name)) for name in ("cosine", "dot", "l2")},
            "a": self._described(left),
            "b": self._described(right),
            "settings": {"center": center or remove > 0, "remove": remove},
        }

    def heatmap(self, words: Sequence[Word]) -> Answer:
        """Rows as they are, side by side."""
        if not 1 <= len(words) <= limits.MOST_ROWS:
            raise ShapeError(f"a heat map here shows 1 to {limits.MOST_ROWS} rows, found {len(words):,}")
        drawn = Heatmap.of(self.table, [_query(self._resolved(word)) for word in words])
        rows = zip(drawn.rows, drawn.labels, drawn.values, strict=True)
        return {
            "rows": [
                {
                    "label": label,
                    "id": row.ids[0] if len(row.ids) == 1 else None,
                    "tokens": list(row.tokens),
                    "also": self._also(row.ids[0]) if len(row.ids) == 1 else [],
                    "values": packed(values),
                }
                for row, label, values in rows
            ],
            "limit": number(drawn.limit),
        }

    def complete(self, prefix: str, n: int = 12) -> Answer:
        """Tokens that begin with what was typed, then those that hold it."""
        within("n", n, 1, 100)
        check_word(prefix)
        with self._lock:
            if self._spellings is None:
                self._spellings = Spellings(self.table.vocab)
        return {"tokens": [self._token(i) for i in self._spellings.complete(prefix, n)]}

    def _resolved(self, word: Word) -> Resolved:
        if isinstance(word, str):
            check_word(word)
            shown = as_shown(self.table.vocab, word)
            return resolve(self.table, word if shown is None else shown)
        check_row(word, len(self.table))
        return resolve(self.table, word)

    def _described(self, found: Resolved) -> Answer:
        also = self._also(found.ids[0]) if len(found.ids) == 1 else []
        return {"word": found.word, "ids": list(found.ids), "tokens": list(found.tokens), "also": also}

    def _also(self, i: int) -> list[int]:
        """Other ids that hold the token of row ``i``, or what looks like it."""
        others = (other for other in alike(self.table.vocab, self.table.vocab[i]) if other != i)
        return list(islice(others, limits.MOST_ALIKE))

    def _view(self, center: bool, remove: int) -> Any:
        return self._views.under(center, within(limits.REMOVED, remove, 0, self._removable))

    @property
    def _removed(self) -> int:
        """Directions that the page takes out unless it is told how many."""
        return min(UNASKED, self._removable)

    @property
    def _removable(self) -> int:
        """How many directions the switches can take out."""
        return min(limits.MOST_REMOVED, min(self.table.dim, len(self.table)) - 1)

    def _token(self, i: int) -> Answer:
        return {"token": self.table.vocab[i], "id": i}

    def _map_asked(
        self, method: str, dims: int, seed: int, center: bool | None, remove: int
    ) -> tuple[Any, int, int, bool | None, int]:
        one_of(limits.PROJECTION, method, tuple(available()))
        if dims not in (2, 3):
            raise ShapeError(f"{limits.DIMENSIONS} must be 2 or 3, found {dims!r}")
        within("seed", seed, 0, limits.LARGEST_SEED)
        within(limits.REMOVED, remove, 0, self._removable)
        return method, dims, seed, center, remove

    def _projected(
        self, asked: tuple[Any, int, int, bool | None, int], progress: Progress
    ) -> tuple[Projection, float]:
        method, dims, seed, center, remove = asked
        begin = time.perf_counter()
        made = project(self.table, method, dims, seed, center=center, remove=remove, progress=progress)
        return made, time.perf_counter() - begin


def _query(found: Resolved) -> Word:
    """The id where one row is meant, so that a word is searched once; else the word."""
    return found.ids[0] if len(found.ids) == 1 else found.word


def _hits(hits: Sequence[Hit]) -> list[Answer]:
    return [{"token": hit.token, "id": hit.id, "score": number(hit.score)} for hit in hits]
