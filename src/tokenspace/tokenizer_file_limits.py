"""Bounds on a tokenizer's lists and settings that hold before anything is built of them."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenspace.errors import CheckpointError

MOST_HOLES = 100_000  # ids without a token, beyond one for each token: more is damage, not padding
MOST_LINES = 4_000_000  # of a vocab.txt
MOST_BYTES = 1 << 25  # of tokenizer_config.json and other settings
MOST_ENTRIES = 100_000  # of an object of settings or of added tokens
FREE = 8 << 20  # bytes that settings may take beyond four times theirs: a model's may be held twice
_SPARE_LINES = 10_000  # more than rows, or than merges that can be
_FREE = 1 << 19  # bytes of tokens that are never too many
_LONGEST_MEAN = 64  # bytes of a token, on average
_SMALL = 1 << 23  # bytes; what a shorter vocab.json becomes is small
_IDS = re.compile(rb":[ \n]*(\d{1,20})")


def check_vocabulary(path: Path, content: bytes, rows: int | None) -> None:
    """Raise ``CheckpointError`` if a ``vocab.txt`` has far more lines than the table has rows (None if they
    are not known), more than ``MOST_LINES``, or far more than it has tokens, or tokens that are too long.
    """
    count = content.count(b"\n") + 1
    if rows is not None and count > rows + _SPARE_LINES:
        raise CheckpointError(
            f"{path} has {count:,} lines, a token each, for a table of {rows:,} rows: is it another model's?"
        )
    if count > MOST_LINES:
        raise CheckpointError(f"{path} has {count:,} lines; {MOST_LINES:,} are the most, a token a line")
    _check_mean(path, len(content), count)
    _check_distinct(path, content, count)


def check_ids(path: Path, content: bytes) -> None:
    """Raise ``CheckpointError`` if a large ``vocab.json`` gives far more tokens than ids."""
    if len(content) <= _SMALL:
        return
    ids = len({match[1] for match in _IDS.finditer(content)})
    _check_mean(path, len(content), ids)
    if (count := content.count(b":")) > 2 * ids + MOST_HOLES:
        raise CheckpointError(
            f"{path} must give each token an id of its own; it has about {count:,} entries and {ids:,} ids"
        )


def check_merges(path: Path, content: bytes, tokens: Iterable[str]) -> None:
    """Raise ``CheckpointError`` if a ``merges.txt`` has more lines than ``tokens`` can be split into two, or
    far more than it has merges.
    """
    most = sum(max(len(token) - 1, 0) for token in tokens)
    if (count := content.count(b"\n")) > most + _SPARE_LINES:
        raise CheckpointError(
            f"{path} has {count:,} lines, a merge each; the tokens of vocab.json come of {most:,} at most"
        )
    _check_distinct(path, content, count)


def check_settings_size(path: Path, content: bytes) -> None:
    """Raise ``CheckpointError`` if a file of settings has more than ``MOST_BYTES``."""
    if len(content) > MOST_BYTES:
        raise CheckpointError(
            f"{path} has {len(content):,} bytes; a tokenizer's settings have {MOST_BYTES:,} at most"
        )


def check_settings(path: Path, settings: dict[str, Any]) -> None:
    """Raise ``CheckpointError`` if settings, or an object or list in them, have over ``MOST_ENTRIES``."""
    parts = [part for part in (settings, *settings.values()) if isinstance(part, dict | list)]
    if (largest := max(map(len, parts))) > MOST_ENTRIES:
        raise CheckpointError(
            f"{path} has {largest:,} entries in one object or list; {MOST_ENTRIES:,} are the most"
        )


def _check_mean(path: Path, size: int, count: int) -> None:
    if size > _FREE and size > _LONGEST_MEAN * count:
        raise CheckpointError(
            f"{path} has {size:,} bytes for {count:,} tokens; {_LONGEST_MEAN} on average are the most"
        )


def _check_distinct(path: Path, content: bytes, count: int) -> None:
    if count > MOST_HOLES and count > 2 * (distinct := len(set(io.BytesIO(content)))) + MOST_HOLES:
        raise CheckpointError(
            f"{path} has {count:,} lines, and {distinct:,} different ones; each line needs its own content"
        )
