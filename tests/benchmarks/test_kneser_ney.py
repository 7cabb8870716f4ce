"""The 3-gram model against its definition, spelled out with dictionaries, and against what it must be."""

import importlib
import math
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
END, ROWS = 0, 400
NEVER = 399  # no sentence holds it
CHANCES = 1 / np.arange(1, NEVER) ** 1.2
CHANCES = CHANCES / CHANCES.sum()


@pytest.fixture(scope="module")
def kneser_ney():
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("kneser_ney")
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def sentences():
    """Each token leans on the two before it; some sentences are empty."""
    rng = np.random.default_rng(5)
    made = []
    for _ in range(1500):
        sentence = []
        for _ in range(rng.integers(0, 7)):
            likely = (sum(sentence[-2:]) % 5) + 1
            sentence.append(int(likely if rng.random() < 0.6 else rng.choice(len(CHANCES), p=CHANCES) + 1))
        made.append(sentence)
    return made


def stream(sentences):
    return np.array([token for sentence in sentences for token in [*sentence, END]])


class Spelled:
    """Chen & Goodman's formulas a token at a time: counts in dictionaries, no arrays, no keys."""

    def __init__(self, sentences):
        texts = [["<s>", *sentence, END] for sentence in sentences]
        triples = Counter(t for text in texts for t in zip(text, text[1:], text[2:], strict=False))
        pairs = Counter(pair for text in texts for pair in pairwise(text) if pair[0] == "<s>")
        for (_, *pair), _ in triples.items():
            pairs[tuple(pair)] += 1
        words = Counter(word for _, word in pairs)
        self.counts = [{(word,): n for word, n in words.items()}, pairs, triples]
        self.discounts = [self._discounts(counts) for counts in self.counts]
        self.followers = [defaultdict(list) for _ in self.counts]
        for followers, counts in zip(self.followers, self.counts, strict=True):
            for gram, n in counts.items():
                followers[gram[:-1]].append(n)

    def _discounts(self, counts):
        n = [None, *(sum(count == c for count in counts.values()) for c in (1, 2, 3, 4))]
        y = n[1] / (n[1] + 2 * n[2])
        return [0.0, *(c - (c + 1) * y * n[c + 1] / n[c] for c in (1, 2, 3))]

    def p(self, word, context):
        if len(context) == 2 and context[1] == "<s>":
            context = context[1:]
        order = len(context)
        lower = self.p(word, context[1:]) if order else 1 / ROWS
        seen = self.followers[order].get(tuple(context))
        if not seen:
            return lower
        discount = self.discounts[order]
        count = self.counts[order].get((*context, word), 0)
        taken = sum(discount[min(n, 3)] for n in seen)
        return (count - discount[min(count, 3)] + taken * lower) / sum(seen)


def test_it_is_what_the_formulas_say(kneser_ney, sentences):
    model, spelled = kneser_ney.KneserNey(stream(sentences), END, ROWS), Spelled(sentences)
    for grams, discounts in zip((model.words, model.pairs, model.triples), spelled.discounts, strict=True):
        assert grams.discounts == pytest.approx(discounts[1:])
        assert grams.discounts != kneser_ney.FALLBACK
    held_out = [[3, NEVER, 3, 3], [], [5, 1, 2, 2, 7, 10, 9], [NEVER] * 3, *sentences[:20]]
    expected = [
        math.log(spelled.p(word, ["<s>", "<s>", *sentence[:place]][-2:]))
        for sentence in held_out
        for place, word in enumerate([*sentence, END])
    ]
    found = model.log_probabilities(stream(held_out))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert model.perplexity(stream(held_out)) == pytest.approx(math.exp(-np.mean(expected)))


@pytest.mark.parametrize(
    "begun", [[], [3], [1, 2], [4, 4, 9], [NEVER], [NEVER] * 2, [1, NEVER], [NEVER, 1]], ids=str
)
def test_what_may_follow_sums_to_1_after_any_context_and_nothing_is_impossible(kneser_ney, sentences, begun):
    following = kneser_ney.KneserNey(stream(sentences), END, ROWS).probabilities(begun)
    assert following.sum() == pytest.approx(1.0, abs=1e-12)
    assert (following > 0).all()


def test_a_context_sees_no_further_than_its_sentence(kneser_ney, sentences):
    model = kneser_ney.KneserNey(stream(sentences), END, ROWS)
    alone = model.log_probabilities(stream([[2, 3]]))
    np.testing.assert_array_equal(model.log_probabilities(stream([[5, 4], [2, 3]]))[3:], alone)


def test_it_beats_pairs_and_words_alone_where_two_tokens_tell_the_next(kneser_ney, sentences):
    training, held_out = stream(sentences[:1300]), stream(sentences[1300:])
    model = kneser_ney.KneserNey(training, END, ROWS)
    words = np.bincount(training, minlength=ROWS) + 1.0
    words /= words.sum()
    pairs = np.tile(5 * words, (ROWS, 1))  # five tokens' worth of what is likely anywhere
    np.add.at(pairs, (training[:-1], training[1:]), 1)
    pairs /= pairs.sum(axis=1, keepdims=True)
    by_pairs = math.exp(-np.log(pairs[np.append(END, held_out[:-1]), held_out]).mean())
    by_words = math.exp(-np.log(words[held_out]).mean())
    assert model.perplexity(held_out) < 0.85 * min(by_pairs, by_words)


def test_a_text_too_small_for_the_formulas_gets_fixed_discounts(kneser_ney):
    model = kneser_ney.KneserNey(np.array([1, 2, END]), END, ROWS)
    assert model.triples.discounts == kneser_ney.FALLBACK
    assert model.probabilities([1]).sum() == pytest.approx(1.0)
