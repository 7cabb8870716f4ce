"""A 3-gram model with interpolated modified Kneser-Ney smoothing, to measure a language model against.

Chen & Goodman 1999 ("An empirical study of smoothing techniques for language modeling", Computer Speech and
Language 13; section 3 and equation 26), with the sentence boundaries of Heafield et al. 2013 (KenLM):

    p(w | uv) = (c(uvw) - D(c(uvw))) / Σ_x c(uvx) + γ(uv) p(w | v)
    p(w | v)  = (a(vw)  - D(a(vw)))  / Σ_x a(vx)  + γ(v)  p(w)
    p(w)      = (a(w)   - D(a(w)))   / Σ_x a(x)   + γ     / V

where c counts, a(vw) and a(w) say how many different tokens stand before vw and w, D is the discount of a
count, and γ gives back what the discounts took away, so that each sums to 1.

A sentence begins after a mark that is never predicted, and its end is a token like any other. Nothing stands
before the mark, so pairs that begin with it keep their plain count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FALLBACK = (0.5, 1.0, 1.5)  # where the text is too small for equation 26, as KenLM's --discount_fallback


class Grams(NamedTuple):
    """The n-grams of one order, each a context and a word, sorted; and the contexts, sorted."""

    keys: np.ndarray  # (G,) int64: context · V + word
    kept: np.ndarray  # (G,) float64: (count - discount) / the context's total
    contexts: np.ndarray  # (C,) int64
    left: np.ndarray  # (C,) float64: γ, the probability that the discounts took away
    discounts: tuple[float, float, float]  # of counts 1, 2, and 3 or more

    def kept_of(self, keys: np.ndarray) -> np.ndarray:
        return _found(self.keys, self.kept, keys, 0.0)

    def left_of(self, contexts: np.ndarray) -> np.ndarray:
        return _found(self.contexts, self.left, contexts, 1.0)  # a context never seen has nothing of its own


class KneserNey:
    """Fitted to ``ids`` (N,): sentences of tokens ``0 … rows-1``, each ended by the token ``end``.

    >>> model = KneserNey(np.array([3, 4, 5, 2, 3, 4, 2]), end=2, rows=6)
    >>> model.probabilities([3, 4]).round(3)  # 5 was seen there, and so was the end
    array([0.021, 0.021, 0.446, 0.046, 0.046, 0.421])
    >>> float(model.probabilities([3, 4]).sum())
    1.0
    """

    def __init__(self, ids: np.ndarray, end: int, rows: int) -> None:
        self.end, self.rows = end, rows
        before, last = self._history(ids)
        seen = last != end
        triples, counts = np.unique(self._key3(before, last, ids)[seen], return_counts=True)
        starts, start_counts = np.unique(self._key2(last, ids)[~seen], return_counts=True)
        pairs, pair_counts = np.unique(triples % rows**2, return_counts=True)
        words, word_counts = np.unique(np.concatenate([pairs, starts]) % rows, return_counts=True)
        self.triples = _grams(triples, counts, rows)
        self.pairs = _grams(
            np.concatenate([pairs, starts]), np.concatenate([pair_counts, start_counts]), rows
        )
        self.words = _grams(words, word_counts, rows)

    def log_probabilities(self, ids: np.ndarray) -> np.ndarray:
        """ln p of each token (N,) of sentences ended by ``end``, the first of them whole."""
        before, last = self._history(ids)
        return np.log(self._probabilities(before, last, ids))

    def perplexity(self, ids: np.ndarray) -> float:
        """exp of the mean negative log-probability, sentence ends counted."""
        return float(np.exp(-self.log_probabilities(ids).mean()))

    def probabilities(self, sentence: list[int]) -> np.ndarray:
        """p (V,) of the token after those of a ``sentence`` (none: of its first)."""
        before, last = [self.end, self.end, *sentence][-2:]
        words = np.arange(self.rows)
        return self._probabilities(np.full_like(words, before), np.full_like(words, last), words)

    def _probabilities(self, before: np.ndarray, last: np.ndarray, words: np.ndarray) -> np.ndarray:
        pair = self._key2(last, words)
        triple = self._key3(before, last, words)
        one = self.words.kept_of(words) + self.words.left[0] / self.rows
        two = self.pairs.kept_of(pair) + self.pairs.left_of(pair // self.rows) * one
        three = self.triples.kept_of(triple) + self.triples.left_of(triple // self.rows) * two
        return np.where(last == self.end, two, three)

    def _history(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The token two before each and the one before it; the end of one sentence marks the next's start."""
        padded = np.concatenate([[self.end, self.end], ids]).astype(np.int64)
        return padded[:-2], padded[1:-1]

    def _key2(self, last: np.ndarray, word: np.ndarray) -> np.ndarray:
        return last * self.rows + word

    def _key3(self, before: np.ndarray, last: np.ndarray, word: np.ndarray) -> np.ndarray:
        return (before * self.rows + last) * self.rows + word


def discounts(counts: np.ndarray) -> tuple[float, float, float]:
    """D of counts 1, 2, and 3 or more (equation 26), from how many n-grams have counts 1, 2, 3 and 4.

    >>> discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4]))
    (0.5, 1.25, 1.0)
    """
    n1, n2, n3, n4 = (int((counts == n).sum()) for n in (1, 2, 3, 4))
    if not (n1 and n2 and n3 and n4):
        return FALLBACK
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 <= d <= n for n, d in enumerate(found, 1)) else FALLBACK


def _grams(keys: np.ndarray, counts: np.ndarray, rows: int) -> Grams:
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    contexts, context_of = np.unique(keys // rows, return_inverse=True)
    found = discounts(counts)
    taken = np.array([0.0, *found])[np.minimum(counts, 3)]
    totals = np.bincount(context_of, counts)
    kept = (counts - taken) / totals[context_of]
    return Grams(keys, kept, contexts, np.bincount(context_of, taken) / totals, found)


def _found(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray, otherwise: float) -> np.ndarray:
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], otherwise)
