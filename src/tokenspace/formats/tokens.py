"""What the exchange formats share: tokens are bytes between separators, and no word of the table's making."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from tokenspace.errors import TableFormatError, VocabError
from tokenspace.shapes import Array
from tokenspace.table import Table
from tokenspace.vocab import Vocab

Errors = Literal["strict", "replace", "surrogateescape"]
Refusal = Callable[[bytes], str | None]  # why a format can't hold a token, and which can; None if it can
Verify = Callable[[Callable[[], Table]], None]  # given how to read what was written; raises if it is wrong
LONGEST_TOKEN = 1 << 16  # bytes; in word2vec's and GloVe's files more are damage
_SHOWN = 40  # characters
READ_FROM = "read_from"  # the one key of provenance that reading such a file gives


def decoded(token: bytes, errors: Errors, path: Path, place: str, offset: int) -> str:
    """The token's text; ``TableFormatError`` with its place and bytes if it is no UTF-8 and must be."""
    try:
        return token.decode("utf-8", errors)
    except UnicodeDecodeError:
        raise TableFormatError(
            f"{path}, {place} (byte {offset:,}): the token {token!r} is not UTF-8; load(path, "
            "errors='replace') reads it with U+FFFD, errors='surrogateescape' keeps its bytes"
        ) from None


def table_read(path: Path, name: str, weight: Array, tokens: Sequence[str], **about: Any) -> Table:
    """The table that a file of format ``name`` holds. Equal tokens keep their rows, each at its own id, and
    ``provenance`` counts those that repeat an earlier one.
    """
    repeated = len(tokens) - len(set(tokens))
    read_from = {"file": path.name, "format": name, **about}
    if repeated:
        read_from["repeated_tokens"] = repeated
    return Table(weight, Vocab(tokens), provenance={READ_FROM: read_from})


def unwritable(vocab: Vocab, refusal: Refusal) -> dict[int, str]:
    """The ids whose tokens a format can't hold, with the reason for each."""
    found = ((i, refusal(token)) for i, token in enumerate(encoded(vocab)))
    return {i: reason for i, reason in found if reason}


def encoded(vocab: Vocab) -> list[bytes]:
    """Every token as bytes, in id order."""
    data, ends = vocab.data.tobytes(), vocab.offsets.tolist()
    return [data[start:end] for start, end in pairwise(ends)]


def check_writable(vocab: Vocab, refusal: Refusal, name: str, path: str | os.PathLike[str]) -> None:
    """``VocabError`` that names the first token which would not be read back as it is."""
    refused = unwritable(vocab, refusal)
    if refused:
        first, reason = next(iter(refused.items()))
        others = f" (and {counted(len(refused) - 1, 'more such token')})" if len(refused) > 1 else ""
        raise VocabError(
            f"can't write {path} as {name}: token {short(vocab[first])} at id {first:,}{others} would not be "
            f"read back: {reason}"
        )


def too_long(token: bytes) -> str | None:
    """Why a token is refused where a reader looks for its end; None if it is short enough."""
    if len(token) <= LONGEST_TOKEN:
        return None
    return f"it has {len(token):,} bytes, and {LONGEST_TOKEN:,} are the most; numpy and native can hold it"


def short(token: str) -> str:
    """``token`` in quotes, what is far too long for a line cut.

    >>> short("a" * 100)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…'"
    """
    return repr(token if len(token) <= _SHOWN else token[:_SHOWN] + "…")


def counted(n: int, what: str) -> str:
    """
    >>> counted(1, "row"), counted(2_000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def is_utf8(token: bytes) -> bool:
    """Whether the token is text."""
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
