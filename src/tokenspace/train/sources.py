"""Whether the text is still what a run began with."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenspace import text
from tokenspace.errors import CorpusError
from tokenspace.shown import shown
from tokenspace.train.corpus import open_corpus


def check_same_text(folder: Path, files: text.Files) -> None:
    """``CorpusError`` if a finished corpus lies in ``folder`` that was made of other text than ``files``, or
    is damaged.
    """
    if (corpus := open_corpus(folder)) is not None:
        anew = f"or delete {shown(str(folder.parent))} to begin anew"
        check_unchanged(files, [source.description() for source in corpus.sources], anew)
        corpus.check_bytes()


def check_unchanged(
    files: text.Files,
    before: Sequence[dict[str, Any]],
    otherwise: str = "or train without --resume (resume=True)",
) -> None:
    """``CorpusError`` unless ``files`` are those of ``before`` (``TextFile.description``), byte for byte.

    What was read from stdin is not compared: it can't be read twice. ``otherwise`` is what to do but bring
    the text back.
    """
    found: list[Path | None] = []
    for name in text.named(files):
        found += [None] if os.fspath(name) == "-" else text.find(name)
    try:
        if len(found) != len(before):
            raise _Changed(f"there are {len(found):,} files now, and there were {len(before):,}")
        for path, known in zip(found, before, strict=True):
            if path is not None:
                _check(path, known)
    except _Changed as how:
        raise CorpusError(
            f"the text has changed since this run began ({how}); bring it back to resume, {otherwise}"
        ) from None


def _check(path: Path, known: dict[str, Any]) -> None:
    name = text.legible(path.name)
    if name != known["name"]:
        raise _Changed(f"where {shown(known['name'])} was, {shown(name)} is now")
    try:
        size = path.stat().st_size
        if size != known["bytes"]:
            raise _Changed(f"{shown(str(path))} has {size:,} bytes now, and had {known['bytes']:,}")
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == known["sha256"]
    except OSError as error:
        raise _Changed(f"{shown(str(path))} can't be read any more: {error.strerror}") from None
    if not same:
        raise _Changed(f"{shown(str(path))} has other bytes now")


class _Changed(Exception):
    """How the text is another one now."""
