"""What language-model training can be told, and what depends on the text or the tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tokenspace.errors import ShapeError, VocabError
from tokenspace.initializers import real, whole
from tokenspace.kernels import threads as pool
from tokenspace.tokenizer import Tokenizer

ENDS = ("[SEP]", "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>")  # what stands after a text, by name
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
    batch: int
    rate: float
    weight_decay: float
    dropout: float
    held_out: float
    threads: int
    seed: int

    def checked(self) -> Settings:
        """The same as plain numbers; ``ShapeError`` for one that is out of range."""
        settings = Settings(
            dim=whole("dim", self.dim, 1),
            layers=whole("layers", self.layers, 1),
            heads=whole("heads", self.heads, 1),
            context=whole("context", self.context, 1),
            vocab_size=None if self.vocab_size is None else whole("vocab_size", self.vocab_size, 1),
            lowercase=self.lowercase,
            epochs=None if self.epochs is None else whole("epochs", self.epochs, 1),
            minutes=None if self.minutes is None else real("minutes", self.minutes, positive=True),
            batch=whole("batch", self.batch, 1),
            rate=real("rate", self.rate, positive=True),
            weight_decay=_from_0("weight_decay", self.weight_decay, below=None),
            dropout=_from_0("dropout", self.dropout, below=1.0),
            held_out=_from_0("held_out", self.held_out, below=1.0),
            threads=pool.available() if self.threads is None else whole("threads", self.threads, 1),
            seed=whole("seed", self.seed, 0),
        )
        check_heads(settings.dim, settings.heads)
        return settings


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


def _from_0(name: str, value: Any, below: float | None) -> float:
    number = real(name, value)
    if number < 0 or (below is not None and number >= below):
        allowed = "0 or more" if below is None else f"at least 0 and below {below:g}"
        raise ShapeError(f"{name} must be {allowed}, found {value!r}")
    return number
