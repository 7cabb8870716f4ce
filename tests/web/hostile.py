"""Tokens that a page, a JSON document or a terminal could trip over."""

import numpy as np

import tokenspace as ts
from tokenspace.tokenizer import Tokenizer

TOKENS = [
    "<script>alert(1)</script>",
    "</script><!--",
    "line\nbreak",
    "\x00\x1b[31m",
    "👩‍👩‍👧",
    "\u202eright to left \u05d0\u05d1",
    "x" * 2_000,
    b"\xff\xfe".decode("utf-8", "surrogateescape"),
    "a&b=c#d?e%f/../g",
    "'\"`\\",
    " ",
    "king",
    "King",
    "kings",
]


def table(dim: int = 8, seed: int = 0) -> ts.Table:
    """Those tokens, two of them twice, over random rows."""
    tokens = [*TOKENS, "king", TOKENS[0], "[unused-row-16]"]
    rows = np.random.default_rng(seed).normal(size=(len(tokens), dim)).astype(np.float32)
    return ts.Table(rows, ts.Vocab(tokens, encoding="word"))


def pieces(dim: int = 8, seed: int = 0) -> ts.Table:
    """The same rows, of pieces whose tokenizer is missing: no text can walk through them."""
    whole = table(dim, seed)
    return ts.Table(whole.weight, ts.Vocab(list(whole.vocab), encoding="byte-level"))


def walking_table(dim: int = 6) -> ts.Table:
    """A small table with a tokenizer."""
    tokenizer = Tokenizer.train_from_iterator(["the cat and the dog sat on the mat"])
    rows = np.random.default_rng(1).normal(0, 0.5, (len(tokenizer.vocab), dim)).astype(np.float32)
    return ts.Table(rows, tokenizer.vocab, tokenizer)
