"""Writing what is read in order: plain, or compressed with gzip where the name ends in ``.gz``."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUFFIX = ".gz"


@contextmanager
def writing(path: Path) -> Iterator[io.BufferedIOBase]:
    """A new file to write bytes to. Equal bytes are equal files: gzip's header tells no name and no time."""
    with path.open("wb") as file:
        if path.suffix.lower() != SUFFIX:
            yield file
            return
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            yield packed
