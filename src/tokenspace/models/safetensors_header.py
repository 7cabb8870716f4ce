"""The JSON header of a safetensors file, parsed a member at a time: it takes little more than its bytes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]  # its stub leaves it out
from pathlib import Path
from typing import Any

from tokenspace.errors import TableFormatError

METADATA = "__metadata__"
MOST_TENSORS, MOST_METADATA = 160_000, 500_000  # more take more than a small multiple of their bytes
MOST_SIZES = 1_000_000  # axes of all tensors together
_LONGEST_ENTRY = 4096  # characters; 64 sizes of 19 digits take 1,400
_LARGEST_WIDE = 10_000_000  # bytes; Python keeps a text with such characters in up to four times its bytes
_S = r"[ \t\n\r]*"
_SPACES = re.compile(_S)
_PLAIN = re.compile(r'"([^"\\\x00-\x1f]*)"')  # a string without escapes
_NAME = re.compile(rf"{_S}{_PLAIN.pattern}{_S}:{_S}")
_FEW_ESCAPES = r'"([^"\\\x00-\x1f]*(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*){0,16})"'
_PAIR = re.compile(rf"{_S}{_FEW_ESCAPES}{_S}:{_S}{_FEW_ESCAPES}{_S}([,}}])")
_METADATA_AT = re.compile(rf'(?<!\\)"{METADATA}"{_S}:{_S}(?=\{{)'.encode())
_SIZE = "(?:0|[1-9][0-9]{0,18})"
_SIZES = f"(?:{_SIZE}(?:{_S},{_S}{_SIZE}){{0,63}})?"
_USUAL_ENTRY = re.compile(  # its keys in the order in which safetensors writes them
    rf'\{{{_S}"dtype"{_S}:{_S}"([A-Z0-9_]{{1,16}})"{_S},'
    rf'{_S}"shape"{_S}:{_S}\[{_S}({_SIZES}){_S}\]{_S},'
    rf'{_S}"data_offsets"{_S}:{_S}\[{_S}({_SIZE}){_S},{_S}({_SIZE}){_S}\]{_S}\}}'
)
_AFTER = re.compile(rf"{_S}([,}}])")
_BLOCK = 1 << 20


def members(path: Path, header: bytes | bytearray) -> Iterator[tuple[str, Any]]:
    """Each name in the header with its value, as they come: a tensor's entry, which is checked by the caller,
    or the metadata, a dict of strings.

    ``TableFormatError`` names ``path`` and the byte of what is not as the format says.
    """
    _check_utf8(path, header)
    text = header.decode("latin-1")  # a character a byte: an index is a byte's
    names: set[str] = set()
    sizes = 0
    walk = _Object(path, text, 0)
    for name, at in walk:
        if name in names:
            raise TableFormatError(f"{path}: the header (from byte 8) gives {name!r} twice")
        names.add(name)
        if len(names) > MOST_TENSORS + 1:
            raise TableFormatError(
                f"{path}: the header (from byte 8) lists more than {MOST_TENSORS:,} tensors, the most that "
                "are read"
            )
        value, walk.at = _metadata(path, text, at) if name == METADATA else _entry(path, name, text, at)
        sizes += _axes(value)
        if sizes > MOST_SIZES:
            raise TableFormatError(
                f"{path}: the tensors in the header (from byte 8) have more than {MOST_SIZES:,} axes "
                "together, the most that are read"
            )
        yield name, value
    if text[walk.at :].strip(" \t\n\r"):
        raise _no_json(path, walk.at, "Extra data")


def metadata_of(path: Path, header: bytes | bytearray) -> dict[str, str]:
    """The metadata in the header, found without parsing the tensors' entries; empty if there is none."""
    found = _METADATA_AT.search(header)
    if found is None:
        return {}
    _check_utf8(path, header)
    return _metadata(path, header.decode("latin-1"), found.end())[0]


def _axes(entry: Any) -> int:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    return len(shape) if isinstance(shape, list) else 0


def wrong_entry(path: Path, name: str) -> TableFormatError:
    """The error for a tensor's entry that is not three plain values."""
    return TableFormatError(
        f"{path}: tensor {name!r} in the header (from byte 8) must have exactly dtype, shape and data_offsets"
    )


class _Object:
    """The members of the JSON object at byte ``at`` of ``text``: each name, and the byte where its value
    begins. The caller sets ``at`` to the value's end before it asks for the next.
    """

    def __init__(self, path: Path, text: str, at: int) -> None:
        self.path, self.text, self.at = path, text, at

    def __iter__(self) -> Iterator[tuple[str, int]]:
        if self._next() != "{":
            raise self._no_object()
        self.at += 1
        if self._next() == "}":
            self.at += 1
            return
        while True:
            if plain := _NAME.match(self.text, self.at):
                name, self.at = _decoded(plain[1]), plain.end()
            else:
                name = self._name()
            yield name, self.at
            if (found := _AFTER.match(self.text, self.at)) is None:
                self._next()
                raise _no_json(self.path, self.at, "Expecting ',' delimiter")
            self.at = found.end()
            if found[1] == "}":
                return

    def _name(self) -> str:
        """The name at ``at``, which has an escape, or the error that it is."""
        if self._next() != '"':
            raise _no_json(self.path, self.at, "Expecting property name enclosed in double quotes")
        name, self.at = _string(self.path, self.text, self.at)
        if self._next() != ":":
            raise _no_json(self.path, self.at, "Expecting ':' delimiter")
        self.at += 1
        self._next()
        return name

    def _next(self) -> str:
        """The next character that is no white space; empty at the end."""
        found = _SPACES.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def _no_object(self) -> TableFormatError:
        start = self.text[self.at : self.at + 1]
        if not start or start not in '["-0123456789tfnNI':
            return _no_json(self.path, self.at, "Expecting value")
        kind = {"[": "list", '"': "string", "n": "null", "t": "true", "f": "false"}.get(start, "number")
        return TableFormatError(
            f"{self.path}: the header at byte 8 is a JSON {kind}, not an object of tensors"
        )


def _no_json(path: Path, at: int, why: str) -> TableFormatError:
    return TableFormatError(f"{path}: the header is not JSON at byte {8 + at:,}: {why}")


def _check_utf8(path: Path, header: bytes | bytearray) -> None:
    if header.isascii():
        return
    if len(header) > _LARGEST_WIDE:
        raise TableFormatError(
            f"{path}: a header (from byte 8) of {len(header):,} bytes; {_LARGEST_WIDE:,} are the most of one "
            "with other characters than ASCII's"
        )
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(header), _BLOCK):
        waiting = len(decoder.getstate()[0])
        try:
            decoder.decode(header[start : start + _BLOCK], start + _BLOCK >= len(header))
        except UnicodeDecodeError as error:
            byte = 8 + start - waiting + error.start
            raise TableFormatError(f"{path}: the header is not UTF-8 at byte {byte:,}") from None


def _string(path: Path, text: str, at: int) -> tuple[str, int]:
    """The JSON string at ``at``, and where it ends."""
    if plain := _PLAIN.match(text, at):
        return _decoded(plain[1]), plain.end()
    try:
        value, end = scanstring(text, at + 1, True)
    except json.JSONDecodeError as error:
        raise _no_json(path, error.pos, error.msg) from None
    if not text.isascii() and not value.isascii():
        value = json.loads(text[at:end].encode("latin-1").decode("utf-8"))
    return value, end


def _decoded(plain: str) -> str:
    """The text between a string's quotes. ``json.JSONDecodeError`` if an escape in it is invalid."""
    text = plain if plain.isascii() else plain.encode("latin-1").decode("utf-8")
    return scanstring(text + '"', 0, True)[0] if "\\" in text else text


class _KeyTwiceError(Exception):
    """A key of an entry is there twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _KeyTwiceError
    return found


_ENTRIES = json.JSONDecoder(object_pairs_hook=_once)


def _entry(path: Path, name: str, text: str, at: int) -> tuple[Any, int]:
    """A tensor's entry, and where it ends."""
    usual = _USUAL_ENTRY.match(text, at)
    if usual and usual.end() - at < _LONGEST_ENTRY:
        dtype, shape, begin, end = usual.groups()
        sizes = [int(size) for size in shape.split(",")] if shape else []
        entry = {"dtype": dtype, "shape": sizes, "data_offsets": [int(begin), int(end)]}
        return entry, usual.end()
    part = text[at : at + _LONGEST_ENTRY]
    try:
        value, length = _ENTRIES.raw_decode(part)
    except json.JSONDecodeError as error:
        if len(part) == _LONGEST_ENTRY:
            raise wrong_entry(path, name) from None
        raise _no_json(path, at + error.pos, error.msg) from None
    except _KeyTwiceError:
        raise TableFormatError(
            f"{path}: tensor {name!r} in the header (from byte 8) has one of its keys twice"
        ) from None
    except (RecursionError, ValueError):  # nested too deep; an integer of thousands of digits
        raise wrong_entry(path, name) from None
    if length == _LONGEST_ENTRY:  # cut off within it, perhaps
        raise wrong_entry(path, name)
    return value, at + length


def _metadata(path: Path, text: str, at: int) -> tuple[dict[str, str], int]:
    """The metadata at ``at``, and where it ends."""
    where = f"{path}: {METADATA} in the header (from byte 8)"
    metadata: dict[str, str] = {}
    if text[at : at + 1] != "{":
        raise TableFormatError(f"{where} must map names to strings")
    walk = _Object(path, text, at)
    for name, start in walk:
        if text[start : start + 1] != '"':
            raise TableFormatError(f"{where} must map names to strings")
        value, walk.at = _string(path, text, start)
        _add(metadata, name, value, where)
        while (pair := _PAIR.match(text, walk.at + 1)) and text[walk.at] == ",":  # most of them, quickly
            try:
                name, value = _decoded(pair[1]), _decoded(pair[2])
            except json.JSONDecodeError:
                break  # the walk names the byte
            _add(metadata, name, value, where)
            walk.at = pair.start(3)
    return metadata, walk.at


def _add(metadata: dict[str, str], name: str, value: str, where: str) -> None:
    if name in metadata:
        raise TableFormatError(f"{where} gives {name!r} twice")
    if len(metadata) == MOST_METADATA:
        raise TableFormatError(f"{where} has more than {MOST_METADATA:,} names, the most that are read")
    metadata[name] = value
