"""Plain text files: checked to be text before any work is done, and streamed line by line."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tokenspace.errors import CorpusError
from tokenspace.shown import shown

BLOCK = 1 << 20  # bytes read at a time, and characters of the longest line taken at once
Stream = BinaryIO | io.BufferedIOBase  # of bytes
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


def read(file: str | os.PathLike[str] | Stream, most: int) -> tuple[TextFile, str]:
    """All of one file or open binary stream, read once, so that a pipe will do; at most ``most`` bytes.

    ``CorpusError`` as in ``check``, and if there is more.
    """
    if isinstance(file, (str, os.PathLike)):
        path = Path(file)
        with _told(path):
            if path.is_dir():
                raise CorpusError(f"{shown(str(path))} is a directory; name a text file inside it")
            with path.open("rb") as stream:
                return _whole(path, stream, most)
    path = Path("stdin" if file is sys.stdin.buffer else str(getattr(file, "name", "stream")))
    with _told(path):
        return _whole(path, file, most)


def _whole(path: Path, stream: Stream, most: int) -> tuple[TextFile, str]:
    content = bytearray()
    for block in _text_blocks(path, stream):
        content += block
        if len(content) > most:
            raise CorpusError(
                f"{shown(str(path))} holds more than {most:,} bytes, too many to be such a list"
            )
    return TextFile(path, len(content), hashlib.sha256(content).hexdigest()), content.decode("utf-8-sig")


def _checked(path: Path) -> TextFile:
    digest = hashlib.sha256()
    size = 0
    with _told(path):
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise CorpusError(f"{shown(str(path))} is a directory; name the text files inside it")
        if not stat.S_ISREG(status.st_mode):
            raise CorpusError(
                f"{shown(str(path))} is not a regular file, and it is read more than once; "
                "save what it gives first"
            )
        with path.open("rb") as file:
            for block in _text_blocks(path, file):
                digest.update(block)
                size += len(block)
    return TextFile(path, size, digest.hexdigest())


def _text_blocks(path: Path, file: Stream) -> Iterator[bytes]:
    """The file's bytes, each block once it is known to be UTF-8 text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    while block := file.read(BLOCK):
        held = len(decoder.getstate()[0])  # bytes of a character that the last block cut
        if (zero := block.find(0)) >= 0:
            raise CorpusError(
                f"{shown(str(path))} is not text: byte {size + zero:,} is zero; name a UTF-8 text file"
            )
        try:
            decoder.decode(block)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, size - held + error.start, error.object[error.start]) from None
        size += len(block)
        yield block
    if cut := decoder.getstate()[0]:
        raise _not_utf8(path, size - len(cut), cut[0])


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What the system says of a file that it can't give, as an error of ours."""
    try:
        yield
    except FileNotFoundError:
        raise CorpusError(f"there is no file {shown(str(path))}; check its name") from None
    except OSError as error:
        raise CorpusError(f"can't read {shown(str(path))}: {error.strerror}") from None


def _not_utf8(path: Path, offset: int, value: int) -> CorpusError:
    return CorpusError(
        f"{shown(str(path))} is not UTF-8 text: byte {offset:,} (0x{value:02x}) can't be decoded; "
        "convert the file first, e.g. iconv -f latin1 -t utf-8"
    )
