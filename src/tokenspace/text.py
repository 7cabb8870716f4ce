"""Plain text files: checked to be text before any work is done, and streamed line by line."""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenspace.errors import CorpusError

BLOCK = 1 << 20  # bytes read at a time, and characters of the longest line taken at once
Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True)
class TextFile:
    """A file that was read to its end and is UTF-8 text."""

    path: Path
    bytes: int
    sha256: str

    def description(self) -> dict[str, Any]:
        """For a table's provenance: no folder, no time."""
        return {"name": self.path.name, "bytes": self.bytes, "sha256": self.sha256}


def check(files: Files) -> list[TextFile]:
    """Read every file once; ``CorpusError`` names the first that is missing, unreadable, or no UTF-8 text."""
    paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    if not paths:
        raise CorpusError("no text file was named; name one or more UTF-8 text files, one sentence a line")
    return [_checked(Path(path)) for path in paths]


def lines(files: Sequence[TextFile]) -> Iterator[str]:
    """Every line, in order. A line longer than about a million characters comes in parts, cut at a space."""
    for file in files:
        with file.path.open(encoding="utf-8-sig") as text:
            rest = ""
            while part := text.readline(BLOCK):
                line, rest = rest + part, ""
                if len(part) == BLOCK and not part.endswith("\n"):
                    cut = line.rfind(" ") + 1 or len(line)
                    line, rest = line[:cut], line[cut:]
                yield line
            if rest:
                yield rest


def _checked(path: Path) -> TextFile:
    digest = hashlib.sha256()
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise CorpusError(f"{path} is a directory; name the text files inside it")
        if not stat.S_ISREG(status.st_mode):
            raise CorpusError(
                f"{path} is not a regular file, and it is read more than once; save what it gives first"
            )
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                held = len(decoder.getstate()[0])  # bytes of a character that the last block cut
                if (zero := block.find(0)) >= 0:
                    raise CorpusError(
                        f"{path} is not text: byte {size + zero:,} is zero; name a UTF-8 text file"
                    )
                try:
                    decoder.decode(block)
                except UnicodeDecodeError as error:
                    raise _not_utf8(path, size - held + error.start, error.object[error.start]) from None
                digest.update(block)
                size += len(block)
    except FileNotFoundError:
        raise CorpusError(f"there is no file {path}; check its name") from None
    except OSError as error:
        raise CorpusError(f"can't read {path}: {error.strerror}") from None
    if cut := decoder.getstate()[0]:
        raise _not_utf8(path, size - len(cut), cut[0])
    return TextFile(path, size, digest.hexdigest())


def _not_utf8(path: Path, offset: int, value: int) -> CorpusError:
    return CorpusError(
        f"{path} is not UTF-8 text: byte {offset:,} (0x{value:02x}) can't be decoded; "
        "convert the file first, e.g. iconv -f latin1 -t utf-8"
    )
