"""What skip-gram training can be told: the allowed ranges, and the defaults that depend on the corpus."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from tokenspace.errors import ShapeError

_TOKENS_IN_ALL = 20_000_000
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
    """Checked settings of one run; ``min_count`` and ``lowercase`` are None where the tokenizer was given."""

    dim: int
    epochs: int
    window: int
    negative: int
    sample: float
    min_count: int | None
    lowercase: bool | None
    threads: int
    seed: int
    alpha: float
    min_alpha: float


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
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        raise ShapeError(f"{name} must be a number from {low:g} to {high:g}, found {value!r}")
    return number


def default_min_count(corpus_bytes: int) -> int:
    """1 for less than 100 kB of text, and one more for every power of ten, up to 5.

    >>> [default_min_count(size) for size in (50_000, 100_000, 5_000_000, 50_000_000, 10**12)]
    [1, 2, 3, 4, 5]
    """
    return 1 + sum(corpus_bytes >= 10**power for power in (5, 6, 7, 8))


def default_epochs(corpus_tokens: int) -> int:
    """As many as make 20 million tokens in all, at least 5 and at most 50: a small text is read more often.

    >>> [default_epochs(tokens) for tokens in (1_000, 1_000_000, 100_000_000)]
    [50, 20, 5]
    """
    return min(max(-(-_TOKENS_IN_ALL // corpus_tokens), 5), 50)
