"""How much may be asked at once, and the refusals of more: in the words that the page's controls bear."""

from __future__ import annotations

from tokenspace.errors import ShapeError, TokenIdError, VocabError

LONGEST_WORD = 2_000  # characters
MOST_HITS = 1_000
MOST_ROWS = 64  # of a heat map
MOST_REMOVED = 64
MOST_CLUSTERS = 1_000
LARGEST_SEED = 2**32 - 1
MOST_ALIKE = 8  # other ids that are told of one token

# What a refusal calls a parameter: as the page labels it, and by its name where that is another.
HOW_MANY, CLUSTERS = "how many (k)", "clusters (k)"
PROJECTION, DIMENSIONS = "projection (method)", "dimensions (dims)"
REMOVED = "top directions removed (remove)"


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ShapeError(f"{name} {value[:40]!r} is not known; allowed: {', '.join(allowed)}")


def within(name: str, value: int, least: int, most: int) -> int:
    """``value`` if it lies from ``least`` to ``most``.

    >>> within(HOW_MANY, 5_000, 1, MOST_HITS)
    Traceback (most recent call last):
    ...
    tokenspace.errors.ShapeError: how many (k) must be from 1 to 1,000, found 5,000
    """
    if not least <= value <= most:
        raise ShapeError(f"{name} must be from {least:,} to {most:,}, found {value:,}")
    return value


def check_word(word: str) -> None:
    if not 0 < len(word) <= LONGEST_WORD:
        raise VocabError(f"a word has 1 to {LONGEST_WORD:,} characters here, found {len(word):,}")


def check_row(row: int, rows: int) -> None:
    if not 0 <= row < rows:
        raise TokenIdError(f"id must be from 0 to {rows - 1:,}, found {row:,}")
