"""The order in which training visits a corpus: piece by piece, shuffled anew for each epoch.

A text often changes its subject on the way. Read from front to back, what was learned first is partly
overwritten by what comes last, at the few epochs that a large text gets. In shuffled order every part of the
run sees all of the text. Within a piece sentences keep their order, so that reading stays sequential there.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenspace.shapes import Array, Int


class ReadingOrder:
    """Which piece of the corpus each step of the plan visits.

    ``before`` are the tokens before each of P pieces in the corpus, and all tokens, N. ``shuffle`` False
    visits the pieces as they lie in the corpus. The order depends on ``seed`` and the epoch alone.

    >>> order = ReadingOrder(np.array([0, 10, 30, 35]), epochs=2, seed=1, shuffle=True)
    >>> [order.place(step) for step in range(order.steps)]
    [0, 2, 1, 1, 2, 0]
    >>> [order.tokens_before(step) for step in range(order.steps + 1)]
    [0, 10, 15, 35, 55, 60, 70]
    """

    def __init__(self, before: Int[Array, " P_plus_1"], epochs: int, seed: int, shuffle: bool) -> None:
        self._lengths, self._tokens = np.diff(before), int(before[-1])
        self._seed, self._shuffle = seed, shuffle
        self.pieces = len(self._lengths)
        self.steps = epochs * self.pieces
        self._epoch = lru_cache(maxsize=2)(self._order_of)  # workers may be on both sides of an epoch's end

    def place(self, step: int) -> int:
        """Return which piece of the corpus ``step`` visits."""
        epoch, k = divmod(step, self.pieces)
        return int(self._epoch(epoch)[0][k])

    def tokens_before(self, step: int) -> int:
        """Return how many tokens are read before ``step``, over all epochs."""
        epoch, k = divmod(step, self.pieces)
        return epoch * self._tokens + (int(self._epoch(epoch)[1][k]) if k else 0)

    def _order_of(self, epoch: int) -> tuple[Int[Array, " P"], Int[Array, " P_plus_1"]]:
        places = np.arange(self.pieces)
        if self._shuffle:
            # a piece's own numbers come from (seed, epoch, place), and no place is as great as their number
            entropy = np.random.SeedSequence([self._seed, epoch, self.pieces])
            np.random.default_rng(entropy).shuffle(places)
        return places, np.concatenate([[0], np.cumsum(self._lengths[places])])
