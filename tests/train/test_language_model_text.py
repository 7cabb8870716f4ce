"""On real text: 4,500 verses of the King James Bible, as scripts/wordnet_corpus.py reads them."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tokenspace.geometry.cosine import unit_rows
from tokenspace.tokenizer import Tokenizer
from tokenspace.train.language_model import language_model

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def verses():
    sys.path.insert(0, str(ROOT / "scripts"))
    yield list(importlib.import_module("wordnet_corpus").verses())[:4500]
    sys.path.remove(str(ROOT / "scripts"))


@pytest.mark.slow
def test_it_learns_to_predict_and_number_words_come_together(verses, tmp_path):
    (tmp_path / "verses.txt").write_text("\n".join(verses))
    tokenizer = Tokenizer.train(tmp_path / "verses.txt", min_count=5)
    model = language_model(
        tmp_path / "verses.txt",
        tokenizer=tokenizer,
        dim=32,
        layers=1,
        heads=2,
        context=32,
        epochs=2,
        rate=1e-2,
        threads=1,
    )
    encoded = [tokenizer.encode(verse).ids for verse in verses]
    counts = np.bincount(np.concatenate(encoded), minlength=len(tokenizer.vocab))
    counts[tokenizer.vocab.id("[SEP]")], counts[tokenizer.unk_id] = len(verses), 0
    shares = counts[counts > 0] / counts.sum()
    entropy = -(shares * np.log(shares)).sum()
    assert np.log(model.perplexity) < entropy - 1.5

    known = set((ROOT / "tests" / "data" / "number_words.txt").read_text().split())
    words = np.array([i for i, token in enumerate(tokenizer.vocab) if token.isalpha()])
    is_number = np.array([tokenizer.vocab[i] in known for i in words])
    assert is_number.sum() >= 30
    unit = unit_rows(model.table.lookup(words))
    scores = unit[is_number] @ unit.T
    scores[np.arange(is_number.sum()), np.flatnonzero(is_number)] = -np.inf
    nearest = np.argsort(-scores, axis=1)[:, :10]
    assert is_number[nearest].mean() > 0.3  # by chance 0.02
