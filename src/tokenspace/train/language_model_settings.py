"""What language-model training can be told, and what depends on the text or the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenspace.errors import ShapeError, VocabError
from tokenspace.initializers import real, whole
from tokenspace.kernels import threads as pool
from tokenspace.tokenizer import Tokenizer

OBJECTIVE = "next token, in a decoder of GPT-2's architecture"  # as provenance names it
ENDS = ("[SEP]", "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>")  # what stands after a text, by name
DIM = 256  # where neither it nor a table to begin with is given
_LARGEST_SEED = 2**63 - 1
_TOKENS_IN_ALL = 20_000_000
_MOST_EPOCHS = 20


@dataclass(frozen=True)
class Settings:
    """Settings of one run; ``vocab_size`` and ``lowercase`` are None where the tokenizer was given."""

    dim: int
    layers: int
    heads: int
    context: int
    vocab_size: int | None
    lowercase: bool | None
    epochs: int | None
    minutes: float | None
    threads: int
    seed: int
    batch: int = 16
    rate: float = 5e-3
    weight_decay: float = 0.1
    dropout: float = 0.0
    held_out: float = 0.02

    def checked(self) -> Settings:
        """The same as plain numbers; ``ShapeError`` for one that is out of range."""
        settings = Settings(
            dim=whole("dim", self.dim, 1),
            layers=whole("layers", self.layers, 1),
            heads=whole("heads", self.heads, 1),
            context=whole("context", self.context, 1),
            vocab_size=None if self.vocab_size is None else whole("vocab_size", self.vocab_size, 1),
            lowercase=None if self.lowercase is None else _truth("lowercase", self.lowercase),
            epochs=None if self.epochs is None else whole("epochs", self.epochs, 1),
            minutes=None if self.minutes is None else real("minutes", self.minutes, positive=True),
            batch=whole("batch", self.batch, 1),
            rate=real("rate", self.rate, positive=True),
            weight_decay=from_0("weight_decay", self.weight_decay, below=None),
            dropout=from_0("dropout", self.dropout, below=1.0),
            held_out=from_0("held_out", self.held_out, below=1.0),
            threads=pool.available() if self.threads is None else whole("threads", self.threads, 1),
            seed=whole("seed", self.seed, 0),
        )
        if settings.seed > _LARGEST_SEED:
            raise ShapeError(
                f"seed must be an integer from 0 to {_LARGEST_SEED:,}; found {settings.seed:,}; "
                "take a smaller one"
            )
        check_heads(settings.dim, settings.heads)
        return settings


def width(dim: Any, init_dim: int | None) -> int:
    """``dim``; if it is None that of the table to begin with, or 256. ``ShapeError`` if the two differ.

    >>> width(None, 100), width(None, None), width(64, None)
    (100, 256, 64)
    """
    if dim is None:
        return DIM if init_dim is None else init_dim
    dim = whole("dim", dim, 1)
    if init_dim is not None and init_dim != dim:
        raise ShapeError(
            f"the table given as init is {init_dim:,} wide, dim is {dim:,}: "
            f"leave dim out, or make it {init_dim:,}"
        )
    return dim


def check_heads(dim: int, heads: int) -> None:
    """``ShapeError`` if the heads can't share the width evenly."""
    if dim % heads:
        fitting = [n for n in range(1, dim + 1) if dim % n == 0]
        near = sorted(sorted(fitting, key=lambda n: abs(n - heads))[:3])
        raise ShapeError(
            f"{heads:,} heads can't share a width of {dim:,} evenly; "
            f"take a number that divides it, such as {', '.join(map(str, near))}"
        )


def end_of_text(tokenizer: Tokenizer) -> int:
    """The id of the token that stands between texts; ``VocabError`` if the tokenizer has none.

    >>> end_of_text(Tokenizer.train_from_iterator(["a b"]))
    2
    """
    for name in ENDS:
        found = tokenizer.inner.token_to_id(name)
        if found is not None:
            return found
    raise VocabError(
        f"this tokenizer has no token that ends a text (known ones: {' '.join(ENDS)}), and a language model "
        "needs one; give another tokenizer, or none to learn one"
    )


def default_epochs(tokens: int) -> int:
    """As many as make 20 million tokens in all, at least 1 and at most 20.

    >>> [default_epochs(tokens) for tokens in (1_000, 5_000_000, 10**9)]
    [20, 4, 1]
    """
    return min(max(-(-_TOKENS_IN_ALL // tokens), 1), _MOST_EPOCHS)


def from_0(name: str, value: Any, below: float | None) -> float:
    """``value`` as a float; ``ShapeError`` unless it is 0 or more, and ``below`` that, if it is a number."""
    number = real(name, value)
    if number < 0 or (below is not None and number >= below):
        allowed = "0 or more" if below is None else f"at least 0 and below {below:g}"
        raise ShapeError(f"{name} must be {allowed}, found {value!r}")
    return number


def _truth(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ShapeError(f"{name} must be True or False, found {value!r}")
    return bool(value)
