"""The rows of a table nearest to a word: exact, one block of rows at a time."""

from __future__ import annotations

from typing import SupportsIndex

from tokenspace.geometry.scores import Hit, Metric, check_k, check_metric, nearest_to
from tokenspace.geometry.transform import View, seen
from tokenspace.shapes import ArrayLike
from tokenspace.table import Table


def neighbors(
    table: Table | View,
    query: str | int | ArrayLike,
    k: int = 10,
    metric: Metric = "cosine",
    center: bool = False,
    exclude_query: bool = True,
    remove: SupportsIndex = 0,
) -> list[Hit]:
    """The ``k`` rows nearest to ``query`` (a word, an id, or a vector; see ``resolve``), best first.

    ``metric``: ``cosine``; ``dot``, the inner product; ``l2``, minus the Euclidean distance, so that higher
    is nearer here too. ``center`` first subtracts the mean row from every row and from the query, which takes
    out the direction that all tokens share; ``remove`` also takes out that many directions in which they
    vary most (Mu & Viswanath 2018; see ``Transform``). For many queries of one table, make a ``View`` of it.

    Equal scores come in id order, and equal rows score equal wherever they lie. The query's own rows are left
    out unless ``exclude_query`` is False. Special, unused and byte tokens compete like any other: what lies
    near is a fact about the table. Rows that no token names (``[unused-row-N]``) don't. Fewer than ``k`` hits
    if there are no more rows.

    >>> import numpy as np
    >>> from tokenspace.vocab import Vocab
    >>> table = Table(np.array([[1, 0], [0.8, 0.6], [0, -1]], np.float32), Vocab(["cat", "dog", "of"]))
    >>> neighbors(table, "cat", k=1)
    [Hit(token='dog', id=1, score=0.800000011920929)]
    """
    check_metric(metric)
    check_k(k)
    view = seen(table, center, remove)
    found, target = view.vector(query)
    return nearest_to(view, target, metric, k, found.ids if exclude_query else ())
