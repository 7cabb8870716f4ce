"""What skip-gram training can be told: the allowed ranges, and the defaults that depend on the corpus."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tokenspace.errors import ShapeError
from tokenspace.tokenizer_training import WHOLE_WORDS

_TOKENS_IN_ALL = 20_000_000
_EPOCHS = 5
_ALPHA, _MOST_ALPHA = 0.025, 0.1
_WHOLE = {
    "dim": (1, 65_536),
    "epochs": (1, 100_000),
    "window": (1, 512),
    "negative": (1, 100),
    "min_count": (1, 2**31 - 1),
    "threads": (1, 1024),
    "seed": (0, 2**63 - 1),
    "snapshots": (0, 10_000),
}


@dataclass(frozen=True)
class Settings:
    """Checked settings of one run. ``epochs`` and ``min_count`` are None until the corpus tells.

    Where the tokenizer was given, ``min_count``, ``lowercase`` and ``words`` are None for good.
    """

    dim: int
    epochs: int | None
    window: int
    negative: int
    sample: float
    min_count: int | None
    lowercase: bool | None
    threads: int
    seed: int
    alpha: float
    min_alpha: float
    words: str | None = None
    shuffle: bool = True

    def described(self) -> dict[str, Any]:
        """Return them for a table's provenance.

        ``words`` is there only where words were learned, ``shuffle`` only where it is True: a table made
        before there was a choice says nothing of it, and was read in the order of its files.
        """
        description = asdict(self)
        if self.words is None:
            del description["words"]
        if not self.shuffle:
            del description["shuffle"]
        return description


def checked(
    *,
    dim: Any,
    epochs: Any,
    window: Any,
    negative: Any,
    sample: Any,
    min_count: Any,
    lowercase: Any,
    words: Any,
    threads: Any,
    seed: Any,
    alpha: Any,
    min_alpha: Any,
    shuffle: Any,
    tokenizer_given: bool,
    init_dim: int | None,
) -> Settings:
    """The settings that were asked for; ``ShapeError`` if one can't be, or two don't go together.

    ``dim`` None is ``init_dim``, the width of the table to begin with, or 100. ``alpha`` None is 0.025 with
    such a table, whose rows are worth keeping, and without one ``default_alpha``.
    """
    if tokenizer_given and min_count is not None:
        raise ShapeError("min_count chooses a vocabulary, and a tokenizer has its own: give one or the other")
    words = one_of("words", words, WHOLE_WORDS)
    dim = whole("dim", (100 if init_dim is None else init_dim) if dim is None else dim)
    if init_dim is not None and init_dim != dim:
        raise ShapeError(
            f"the table to begin with has width {init_dim:,}, and dim is {dim:,}; "
            f"leave dim out, or make it {init_dim:,}"
        )
    epochs = None if epochs is None else whole("epochs", epochs)
    if alpha is None:
        alpha = _ALPHA if init_dim is not None else default_alpha(epochs)
    alpha = real("alpha", alpha, 1e-9, 10.0)
    return Settings(
        dim=dim,
        epochs=epochs,
        window=whole("window", window),
        negative=whole("negative", negative),
        sample=real("sample", sample, 0.0, 1.0),
        min_count=None if min_count is None else whole("min_count", min_count),
        lowercase=None if tokenizer_given else truth("lowercase", lowercase),
        threads=whole("threads", threads),
        seed=whole("seed", seed),
        alpha=alpha,
        min_alpha=real("min_alpha", min_alpha, 0.0, alpha),
        words=None if tokenizer_given else words,
        shuffle=truth("shuffle", shuffle),
    )


def whole(name: str, value: Any) -> int:
    """``value`` as an int in the range that the setting ``name`` allows.

    >>> whole("window", 0)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: window must be a whole number from 1 to 512, found 0
    """
    low, high = _WHOLE[name]
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or not low <= number <= high:
        raise ShapeError(f"{name} must be a whole number from {low:,} to {high:,}, found {value!r}")
    return number


def real(name: str, value: Any, low: float, high: float) -> float:
    """``value`` as a float in ``low … high``; NaN lies in no range.

    >>> real("sample", float("nan"), 0, 1)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: sample must be a number from 0 to 1, found nan
    """
    try:
        number = math.nan if isinstance(value, (bool, np.bool_, str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise ShapeError(f"{name} must be a number from {low:g} to {high:g}, found {value!r}")
    return number


def truth(name: str, value: Any) -> bool:
    """``value`` if it is True or False.

    >>> truth("lowercase", "no")
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: lowercase must be True or False, found 'no'
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ShapeError(f"{name} must be True or False, found {value!r}")
    return bool(value)


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """``value`` if it is allowed.

    >>> one_of("words", "letters", WHOLE_WORDS)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: words must be one of word, whitespace; found 'letters'
    """
    if not isinstance(value, str) or value not in allowed:
        raise ShapeError(f"{name} must be one of {', '.join(allowed)}; found {value!r}")
    return value


def default_min_count(corpus_bytes: int) -> int:
    """1 for less than 100 kB of text, and one more for every power of ten, up to 5.

    >>> [default_min_count(size) for size in (50_000, 100_000, 5_000_000, 50_000_000, 10**12)]
    [1, 2, 3, 4, 5]
    """
    return 1 + sum(corpus_bytes >= 10**power for power in (5, 6, 7, 8))


def default_alpha(epochs: int | None) -> float:
    """Return 0.025, word2vec's learning rate, or more for fewer than five epochs: 0.125 a run, 0.1 at most.

    Rows move by the sum of all rates. At 0.025 that is too little for a single pass: frequent words are where
    they belong, and all others still on their way there. ``epochs`` None is a number that the corpus decides,
    never less than five.

    >>> [default_alpha(epochs) for epochs in (1, 2, 3, 4, 5, 50, None)]
    [0.1, 0.0625, 0.041667, 0.03125, 0.025, 0.025, 0.025]
    """
    if epochs is None or epochs >= _EPOCHS:
        return _ALPHA
    return min(round(_ALPHA * _EPOCHS / epochs, 6), _MOST_ALPHA)


def default_epochs(corpus_tokens: int) -> int:
    """As many as make 20 million tokens in all, at least 5 and at most 50: a small text is read more often.

    >>> [default_epochs(tokens) for tokens in (1_000, 1_000_000, 100_000_000)]
    [50, 20, 5]
    """
    return min(max(-(-_TOKENS_IN_ALL // corpus_tokens), _EPOCHS), 50)
