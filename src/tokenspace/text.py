"""Plain text files, compressed or not: found, checked to be UTF-8, and streamed."""

from __future__ import annotations

import codecs
import glob
import gzip
import hashlib
import io
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from tokenspace.errors import CorpusError, MissingExtra
from tokenspace.shown import shown

BLOCK = 1 << 20  # bytes of text taken at once, but for what it takes to end at a line's end
Stream = BinaryIO | io.BufferedIOBase  # of bytes
Files = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_GZIP = (b"\x1f\x8b",)
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + n, 0x2A, 0x4D, 0x18)) for n in range(16)))  # skippable frames
_BITE = 2048  # bytes of zstd data at a time: they may stand for 64 MB of text
_MARK = codecs.BOM_UTF8


@dataclass(frozen=True)
class TextFile:
    """A file that was read to its end and is UTF-8 text; its bytes are those that lie there, compressed."""

    path: Path
    bytes: int
    sha256: str

    def description(self) -> dict[str, Any]:
        """For a table's provenance: no folder, no time."""
        return {"name": legible(self.path.name), "bytes": self.bytes, "sha256": self.sha256}


def legible(name: str) -> str:
    """A file's ``name`` as text that any file can hold: its bytes that are no UTF-8 are written as escapes.

    >>> legible("caf\\udce9.txt")
    'caf\\\\xe9.txt'
    """
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def as_texts(texts: str | Iterable[str]) -> list[str]:
    """Return one text or several as a list: a ``str`` is one text, not a list of its characters.

    ``CorpusError`` for anything that is neither.

    >>> as_texts("hi"), as_texts(["a cat", "hi"])
    (['hi'], ['a cat', 'hi'])
    """
    if isinstance(texts, str):
        return [texts]
    return list(each_text(texts))


def each_text(texts: Iterable[str]) -> Iterator[str]:
    """Yield each of ``texts``, read when it is asked for; the errors are those of ``as_texts``."""
    if isinstance(texts, bytes | bytearray | memoryview | Mapping) or not isinstance(texts, Iterable):
        raise CorpusError(f"a text (str) or a list of texts is needed, found {type(texts).__name__}")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(f"each text must be a str; the one at place {place:,} is {type(text).__name__}")
        yield text


def check_text(text: object, what: str = "text") -> None:
    """``CorpusError`` unless ``text`` is a ``str``; ``what`` names the argument.

    >>> check_text(["a cat"], "pair")
    Traceback (most recent call last):
    ...
    tokenspace.errors.CorpusError: pair must be one text (a str), found list
    """
    if not isinstance(text, str):
        raise CorpusError(f"{what} must be one text (a str), found {type(text).__name__}")


class Block(NamedTuple):
    """A part of a text, about a megabyte of UTF-8. ``ends_line``: False if its last line goes on."""

    data: bytes
    ends_line: bool

    def lines(self) -> Iterator[str]:
        """Its lines with their ends, each of which is written as a newline."""
        return iter(io.StringIO(self.data.decode(), newline=None))


class Reading:
    """Text files read once, from the first to the last, so that a pipe will do.

    ``paths`` are what ``find`` found. What is compressed with gzip or zstd, whatever its name, is read as
    what it holds. Iterating gives blocks, cut at ends of lines; within a line of more than a megabyte they
    are cut before a space or tab, and where there is none either, between two characters.

    ``CorpusError`` names the first file that is missing, unreadable, damaged or no UTF-8 text, and the byte.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.done: list[TextFile] = []
        self.text_bytes = 0  # of the files done, once decompressed
        self.size = _size(paths)
        self._raw: _Hashed | None = None

    @property
    def fraction(self) -> float | None:
        """How much was read; None where a file does not tell its size."""
        if self.size is None:
            return None
        now = self._raw.size if self._raw is not None else 0
        return min(1.0, (sum(file.bytes for file in self.done) + now) / max(self.size, 1))

    def __iter__(self) -> Iterator[Block]:
        for path in self._paths:
            with _told(path), _opened(path) as stream:
                self._raw = raw = _Hashed(stream)
                yield from self._blocks(path, _decompressed(path, raw))
                self.done.append(TextFile(path, raw.size, raw.sha256()))
                self._raw = None

    def _blocks(self, path: Path, pieces: Iterator[bytes]) -> Iterator[Block]:
        held, offset = b"", 0  # what is not given yet, and its place in the text
        for piece in pieces:
            held += piece
            if offset == 0 and len(held) >= len(_MARK) and held.startswith(_MARK):
                held, offset = held[len(_MARK) :], len(_MARK)
            while len(held) >= BLOCK:
                end, ends_line = _cut(held)
                yield _text(path, Block(held[:end], ends_line), offset)
                offset += end
                held = held[end:]
        if offset == 0 and held.startswith(_MARK):
            held, offset = held[len(_MARK) :], len(_MARK)
        yield _text(path, Block(held, True), offset)
        self.text_bytes += offset + len(held)


def check(files: Files) -> list[TextFile]:
    """Read every file once, as ``Reading`` does; none may be a pipe, as they will be read again."""
    paths = find(files)
    for path in paths:
        if not _regular(path):
            raise CorpusError(
                f"{shown(str(path))} is not a regular file, and it is read more than once; "
                "save what it gives first"
            )
    reading = Reading(paths)
    for _ in reading:
        pass
    return reading.done


def lines(files: Sequence[TextFile]) -> Iterator[str]:
    """Every line of files that were checked, in order; one of more than a megabyte comes in parts."""
    for block in Reading([file.path for file in files]):
        yield from block.lines()


def find(files: Files) -> list[Path]:
    """The files that ``files`` names: paths, patterns, and ``-`` for stdin.

    Patterns hold ``*``, ``?``, ``[…]``, or ``**`` for any folders; what one matches is sorted, and it is an
    error if it matches no file. A file whose own name looks like a pattern is found first.
    """
    names = named(files)
    paths = [path for name in names for path in _matches(os.fspath(name))]
    if sum(path is _STDIN for path in paths) > 1:
        raise CorpusError("stdin (-) was named more than once, and it can be read only once")
    return paths


def named(files: Files) -> list[str | os.PathLike[str]]:
    """``files`` as a list of names; ``CorpusError`` if there is none, or one that can't be a name."""
    names: list[Any] = [files]
    if isinstance(files, Iterable) and not isinstance(files, (str, bytes, bytearray)):
        names = list(files)
    for name in names:
        if not isinstance(name, (str, os.PathLike)) or not isinstance(os.fspath(name), str):
            raise CorpusError(f"a text file is named by a str or a Path, found {name!r}")
    if not names or "" in names:
        raise CorpusError("no text file was named; name one or more UTF-8 text files, one sentence a line")
    return names


def _matches(name: str) -> list[Path]:
    path = Path(name)
    if name == "-":
        return [_STDIN]
    if not glob.has_magic(name) or os.path.lexists(path):
        return [path]
    found = [Path(match) for match in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(match)]
    if not found:
        raise CorpusError(f"no file matches {shown(name)}; check the pattern, and where it starts from")
    return found


_STDIN = Path("stdin")  # as it is called in messages and provenance; known by identity


def _size(paths: Sequence[Path]) -> int | None:
    try:
        return sum(path.stat().st_size for path in paths) if all(map(_regular, paths)) else None
    except OSError:
        return None  # opening it will tell


def _regular(path: Path) -> bool:
    """False for a pipe and for stdin; what can't be told is left to whoever opens it."""
    if path is _STDIN:
        return False
    with _told(path):
        mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise CorpusError(f"{shown(str(path))} is a directory; name the text files inside it")
    return stat.S_ISREG(mode)


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
    content = stream.read(most + 1)
    while len(content) <= most and (piece := stream.read(most + 1 - len(content))):
        content += piece  # a raw stream gives what it has
    if len(content) > most:
        raise CorpusError(f"{shown(str(path))} holds more than {most:,} bytes, too many to be such a list")
    text = _text(path, Block(content, True), 0).data.decode("utf-8-sig")
    return TextFile(path, len(content), hashlib.sha256(content).hexdigest()), text


def _cut(held: bytes) -> tuple[int, bool]:
    """Where ``held`` may be cut, as late as can be, and whether a line ends there."""
    last = len(held) - 1
    if end := held.rfind(b"\n") + 1 or held.rfind(b"\r", 0, last) + 1:  # \r\n is not cut
        return end, True
    if (end := max(held.rfind(b" ", 1), held.rfind(b"\t", 1))) > 0:
        return end, False
    while last > len(held) - 4 and held[last] & 0xC0 == 0x80:
        last -= 1
    return last, False


def _text(path: Path, block: Block, offset: int) -> Block:
    """``block``, once it is known to be UTF-8 text."""
    zero = block.data.find(0)
    if zero >= 0:
        raise CorpusError(
            f"{shown(str(path))} is not text: byte {offset + zero:,} is zero; name a UTF-8 text file"
        )
    if not block.data.isascii():
        try:
            block.data.decode()
        except UnicodeDecodeError as error:
            raise _not_utf8(path, offset + error.start, block.data[error.start]) from None
    return block


class _Hashed(io.RawIOBase):
    """What is read of a stream, hashed on the way."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._digest = stream, hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        self._digest.update(piece)
        self.size += len(piece)
        return len(piece)

    def sha256(self) -> str:
        return self._digest.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[Stream]:
    if path is _STDIN:
        if sys.stdin is None:
            raise CorpusError("stdin (-) is closed; name a file")
        yield sys.stdin.buffer
        return
    if path.is_dir():
        raise CorpusError(f"{shown(str(path))} is a directory; name the text files inside it")
    with path.open("rb") as stream:
        yield stream


def _decompressed(path: Path, raw: _Hashed) -> Iterator[bytes]:
    """The text's bytes, about ``BLOCK`` at a time; the first ones tell what they are compressed with."""
    stream: io.BufferedReader = io.BufferedReader(raw, BLOCK)
    head = stream.peek(4)
    if head.startswith(_GZIP):
        yield from _gunzipped(path, stream)
    elif head.startswith(_ZSTD):
        yield from _zstd_frames(path, stream)
    else:
        while piece := stream.read(BLOCK):
            yield piece


def _gunzipped(path: Path, stream: io.BufferedReader) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=stream) as members:
            while piece := members.read(BLOCK):
                yield piece
    except EOFError:
        raise _damaged(path, "gzip", "it ends too early") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise _damaged(path, "gzip", str(error)) from None


def _zstd_frames(path: Path, stream: io.BufferedReader) -> Iterator[bytes]:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise MissingExtra(f"reading {shown(str(path))}, which is compressed with zstd,", "train") from None
    decompressor = zstandard.ZstdDecompressor()
    frame, pieces, size = None, [], 0
    try:
        while bite := stream.read(_BITE):
            while bite:
                frame = frame or decompressor.decompressobj()
                pieces.append(frame.decompress(bite))
                size += len(pieces[-1])
                bite, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
            if size >= BLOCK:
                yield b"".join(pieces)
                pieces, size = [], 0
    except zstandard.ZstdError as error:
        if "too much memory" in str(error):
            raise CorpusError(
                f"{shown(str(path))} was compressed with a window of more than 128 MB; "
                "decompress it first: zstd -dc --long=31"
            ) from None
        raise _damaged(path, "zstd", str(error)) from None
    if frame is not None:
        raise _damaged(path, "zstd", "it ends too early")
    yield b"".join(pieces)


def _damaged(path: Path, kind: str, fault: str) -> CorpusError:
    return CorpusError(f"{shown(str(path))} is damaged {kind} data: {fault}; get or make it again")


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
