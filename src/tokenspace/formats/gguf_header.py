r"""GGUF's header: what a file says of itself, every count held against its size before it is believed.

Byte layout of versions 2 and 3 (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), little-endian::

    4 bytes    GGUF
    u32        version
    u64        T, the number of tensors
    u64        K, the number of metadata entries
    K times    key (string), u32 kind, value
    T times    name (string), u32 number of axes, u64 size of each (the innermost first), u32 type,
               u64 offset of its data, a multiple of the alignment
    padding    to the next multiple of the alignment: 32, or what the key general.alignment says
    data       offsets count from here

A string is a u64 length and its bytes. An array is a u32 kind, a u64 count, and its items. Nothing is decoded
before it is asked for: the strings of a vocabulary are found by their lengths alone.
"""

from __future__ import annotations

import math
import struct
from array import array
from typing import NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.shapes import Array, Int
from tokenspace.source import Source, read_up_to

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT, ALIGNMENT_KEY = 32, "general.alignment"
STRING, ARRAY, UINT32, INT32 = 8, 9, 4, 5
NUMBERS: dict[int, np.dtype] = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    UINT32: np.dtype("<u4"),
    INT32: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_DEEPEST = 8  # arrays within arrays
_LONGEST_NAME = 65_535  # bytes; the format's own limit for a key
_MOST_AXES = 64
_MOST = 100_000  # entries, tensors, arrays in an array: each costs more here than in a file made to hold many
MOST_STRINGS = 4_000_000  # of all arrays; the largest vocabularies with their merges have half
_FIRST, HEADER_LIMIT = 1 << 16, 1 << 27  # bytes of a packed file that are unpacked at first, and at most
_GROWTH = 4  # times as many if that was too little, and the header is parsed anew
LARGEST = 2**63 - 1  # no file is larger
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


class Type(NamedTuple):
    """How a tensor's numbers are kept: blocks of ``numbers`` numbers in ``size`` bytes each."""

    name: str
    numbers: int
    size: int


TYPES = {  # ggml.h's enum ggml_type, with the block structures of ggml-common.h
    0: Type("F32", 1, 4),
    1: Type("F16", 1, 2),
    2: Type("Q4_0", 32, 18),
    3: Type("Q4_1", 32, 20),
    6: Type("Q5_0", 32, 22),
    7: Type("Q5_1", 32, 24),
    8: Type("Q8_0", 32, 34),
    9: Type("Q8_1", 32, 36),
    10: Type("Q2_K", 256, 84),
    11: Type("Q3_K", 256, 110),
    12: Type("Q4_K", 256, 144),
    13: Type("Q5_K", 256, 176),
    14: Type("Q6_K", 256, 210),
    15: Type("Q8_K", 256, 292),
    16: Type("IQ2_XXS", 256, 66),
    17: Type("IQ2_XS", 256, 74),
    18: Type("IQ3_XXS", 256, 98),
    19: Type("IQ1_S", 256, 50),
    20: Type("IQ4_NL", 32, 18),
    21: Type("IQ3_S", 256, 110),
    22: Type("IQ2_S", 256, 82),
    23: Type("IQ4_XS", 256, 136),
    24: Type("I8", 1, 1),
    25: Type("I16", 1, 2),
    26: Type("I32", 1, 4),
    27: Type("I64", 1, 8),
    28: Type("F64", 1, 8),
    29: Type("IQ1_M", 256, 56),
    30: Type("BF16", 1, 2),
    34: Type("TQ1_0", 256, 54),
    35: Type("TQ2_0", 256, 66),
    39: Type("MXFP4", 32, 17),
    40: Type("NVFP4", 64, 36),
    41: Type("Q1_0", 128, 18),
}


class Value(NamedTuple):
    """A metadata value's place: bytes ``start`` to ``end``. ``starts`` are where an array's strings begin,
    each after its length; ``items`` is the kind of an array's ``length`` items.
    """

    kind: int
    start: int
    end: int
    items: int = STRING
    length: int = 0
    starts: array[int] | None = None


class Tensor(NamedTuple):
    """A tensor's place; ``shape`` has the outermost axis first, as NumPy does. ``type`` is None if its number
    in the file is not known here, and ``end`` is then not either.
    """

    name: str
    shape: tuple[int, ...]
    type: Type | None
    number: int
    start: int
    end: int


class Header:
    """A GGUF file's ``metadata`` by key and ``tensors`` by name. ``TableFormatError`` if they can't be."""

    def __init__(self, source: Source) -> None:
        self.source = source
        if source.packed:
            self._unpack()
            return
        self._read(source.content(), source.size or 0)
        try:
            self._parse()
        except struct.error:
            raise self._ends_early() from None

    def _read(self, content: Int[Array, " bytes"], size: int) -> None:
        """Take ``content`` as the first bytes of a file of ``size``."""
        self.content, self._size, self._view = content, size, content.data
        self.metadata: dict[str, Value] = {}
        self.tensors: dict[str, Tensor] = {}
        self._nested = self._strings_found = 0  # arrays in arrays, and strings in arrays, so far

    def _unpack(self) -> None:
        """Parse the header from as much of a packed file as it takes, ``_GROWTH`` times as much until that is
        enough; then unpack the tensors that it promises, and no more.
        """
        with self.source.open() as stream:
            held, wanted = bytearray(), _FIRST
            while True:
                held = held + read_up_to(stream, wanted - len(held))
                whole = len(held) < wanted
                self._read(np.frombuffer(held, np.uint8), len(held) if whole else LARGEST)
                try:
                    self._parse()
                    break
                except struct.error:
                    if whole:
                        raise self._ends_early() from None
                    if wanted >= HEADER_LIMIT:
                        raise self.damaged(
                            0, f"a header of more than {HEADER_LIMIT:,} bytes in a packed file; unpack it"
                        ) from None
                    wanted = min(_GROWTH * wanted, HEADER_LIMIT)
            end = max((tensor.end for tensor in self.tensors.values()), default=self._data_start)
            room = -end % self._alignment()
            held = held + read_up_to(stream, end + room - len(held))
            if len(held) > end + room or stream.read(1):
                raise self.damaged(end, "the file goes on after the last tensor of its header")
        held += bytes(max(self._data_start - len(held), 0))  # padding before data that there is none of
        content = np.frombuffer(held, np.uint8)
        content.flags.writeable = False
        for tensor in self.tensors.values():
            if tensor.end > content.size:
                raise self._too_short(0, tensor, content.size)
        self.content, self._size, self._view = content, content.size, content.data

    def _ends_early(self) -> TableFormatError:
        return self.damaged(self.content.size, "the file ends within its header; is the download complete?")

    def damaged(self, offset: int, what: str) -> TableFormatError:
        """An error at a place of this file."""
        return TableFormatError(f"{self.source.path} (byte {offset:,}): {what}")

    def text(self, key: str) -> str | None:
        """The string that ``key`` holds; None if the file has no such key."""
        raw = self.raw(key)
        return None if raw is None else raw.decode("utf-8", "replace")

    def raw(self, key: str) -> bytes | None:
        """The same as bytes."""
        found = self.metadata.get(key)
        if found is None:
            return None
        if found.kind != STRING:
            raise self.damaged(found.start, f"the key {key!r} is of kind {found.kind}, not a string (8)")
        return self._view[found.start : found.end].tobytes()

    def numbers(self, key: str) -> Int[Array, " items"] | None:
        """The whole numbers that ``key`` holds, an array or one; None if the file has no such key."""
        found = self.metadata.get(key)
        if found is None:
            return None
        dtype = NUMBERS.get(found.items if found.kind == ARRAY else found.kind)
        if dtype is None or dtype.kind not in "iu":
            raise self.damaged(found.start, f"the key {key!r} holds no whole numbers")
        return self.content[found.start : found.end].view(dtype)

    def strings(
        self, key: str, most: int | None
    ) -> tuple[Int[Array, " bytes"], Int[Array, " items_plus_1"], Int[Array, " items"]] | None:
        """The strings of an array, the first ``most`` of them: their bytes end to end, the offsets between
        them, and where each begins in the file. None if the file has no such key.
        """
        found = self.metadata.get(key)
        if found is None:
            return None
        if found.starts is None:
            raise self.damaged(found.start, f"the key {key!r} is no array of strings")
        starts = np.frombuffer(found.starts, np.int64)
        cut = most is not None and most < starts.size
        end = int(starts[most]) - _U64.size if cut else found.end
        starts = starts[:most]
        kept = np.ones(end - found.start, bool)
        for k in range(1, _U64.size + 1):
            kept[starts - (found.start + k)] = False  # the lengths between the strings
        offsets = np.zeros(starts.size + 1, np.int64)
        np.cumsum(np.diff(starts, append=end + _U64.size) - _U64.size, out=offsets[1:])
        return self.content[found.start : end][kept], offsets, starts

    def _parse(self) -> None:
        if self._view[:4] != MAGIC:
            raise self.damaged(0, f"no GGUF file: it begins with {self._view[:4].tobytes()!r}")
        version = _U32.unpack_from(self._view, 4)[0]
        if version not in VERSIONS:
            big = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            raise self.damaged(
                4,
                "a big-endian GGUF file; turn it with gguf-convert-endian, which comes with the gguf package"
                if big
                else f"version {version:,} of GGUF; versions 2 and 3 are read here: convert the model again",
            )
        tensors, entries = (_U64.unpack_from(self._view, at)[0] for at in (8, 16))
        at = self._metadata(24, self._counted(16, entries, 13, "metadata entries"))
        self._tensors(at, self._counted(8, tensors, 24, "tensors"))

    def _counted(self, at: int, count: int, smallest: int, what: str) -> int:
        """The ``count`` at ``at``, if the bytes after it can be so many things of ``smallest`` bytes each."""
        left = self._size - at - _U64.size
        if count * smallest > left:
            raise self.damaged(
                at, f"a count of {count:,} {what}, for which the {left:,} bytes after it are too few"
            )
        if count > _MOST and what not in ("strings", "numbers"):
            raise self._too_many(at, count, what, _MOST)
        return count

    def _too_many(self, at: int, count: int, what: str, most: int) -> TableFormatError:
        return self.damaged(at, f"a count of {count:,} {what}; {most:,} are the most that are read")

    def _metadata(self, at: int, entries: int) -> int:
        for _ in range(entries):
            key, start = self._name(at, "key")
            if key in self.metadata:
                raise self.damaged(at, f"the key {key!r} is there twice")
            value = self._value(start + _U32.size, _U32.unpack_from(self._view, start)[0])
            self.metadata[key], at = value, value.end
        return at

    def _name(self, at: int, what: str) -> tuple[str, int]:
        """The short string at ``at``, and where it ends."""
        length = _U64.unpack_from(self._view, at)[0]
        start = at + _U64.size
        if length > min(_LONGEST_NAME, self._size - start):
            raise self.damaged(at, f"a {what} of {length:,} bytes; is the header damaged?")
        if start + length > self.content.size:
            raise struct.error  # of a packed file, more is needed
        return str(self._view[start : start + length], "utf-8", "backslashreplace"), start + length

    def _value(self, at: int, kind: int, depth: int = 0) -> Value:
        if kind == STRING:
            start = at + _U64.size
            return Value(kind, start, self._within(at, start + _U64.unpack_from(self._view, at)[0]))
        if kind == ARRAY:
            return self._array(at, depth)
        if kind not in NUMBERS:
            raise self.damaged(at, f"a value of kind {kind:,}; the format has 0 to 12")
        return Value(kind, at, self._within(at, at + NUMBERS[kind].itemsize))

    def _array(self, at: int, depth: int) -> Value:
        items, count = _U32.unpack_from(self._view, at)[0], _U64.unpack_from(self._view, at + 4)[0]
        start = at + 12
        if depth == _DEEPEST:
            raise self.damaged(at, f"arrays within arrays, more than {_DEEPEST} deep")
        if items == STRING:
            self._strings_found += self._counted(at + 4, count, 8, "strings")
            if self._strings_found > MOST_STRINGS:
                raise self._too_many(at + 4, self._strings_found, "strings in arrays", MOST_STRINGS)
            starts, end = self._strings(start, count)
            return Value(ARRAY, start, end, items, count, starts)
        if items == ARRAY:
            end = start
            self._nested += self._counted(at + 4, count, 12, "arrays")
            if self._nested > _MOST:
                raise self._too_many(at + 4, self._nested, "arrays in arrays", _MOST)
            for _ in range(count):
                end = self._array(end, depth + 1).end
            return Value(ARRAY, start, end, items, count)
        if items not in NUMBERS:
            raise self.damaged(at, f"an array of kind {items:,}; the format has 0 to 12")
        size = NUMBERS[items].itemsize
        return Value(ARRAY, start, start + size * self._counted(at + 4, count, size, "numbers"), items, count)

    def _strings(self, at: int, count: int) -> tuple[array[int], int]:
        """Where each of ``count`` strings begins, and where the last one ends: this loop is what opening a
        vocabulary costs, so that it does no more than to add lengths up.
        """
        starts = array("q")
        view, size, found = self._view, self._size, starts.append
        length_at, wide = _U64.unpack_from, _U64.size
        for _ in range(count):
            at += wide
            found(at)
            at += length_at(view, at - wide)[0]
            if at > size:
                raise self.damaged(starts[-1] - wide, "a string that goes on past the file's end")
        return starts, at

    def _within(self, at: int, end: int) -> int:
        if end > self._size:
            raise self.damaged(at, "a value that goes on past the file's end; is the download complete?")
        return end

    def _tensors(self, at: int, count: int) -> None:
        described = []
        for _ in range(count):
            name, end = self._name(at, "tensor's name")
            axes = _U32.unpack_from(self._view, end)[0]
            if axes > _MOST_AXES:
                raise self.damaged(end, f"tensor {name!r} has {axes:,} axes; {_MOST_AXES} are the most")
            sizes = struct.unpack_from(f"<{axes}Q", self._view, end + 4)
            end += 4 + 8 * axes
            number, offset = (
                _U32.unpack_from(self._view, end)[0],
                _U64.unpack_from(self._view, end + 4)[0],
            )
            described.append((at, name, sizes[::-1], number, offset))
            at = end + 12
        alignment = self._alignment()
        data_start = self._data_start = -(-at // alignment) * alignment
        for place, name, shape, number, offset in described:
            if name in self.tensors:
                raise self.damaged(place, f"the tensor {name!r} is there twice")
            if offset % alignment:
                raise self.damaged(
                    place,
                    f"tensor {name!r} is at offset {offset:,}, no multiple of the alignment {alignment}",
                )
            self.tensors[name] = self._placed(place, name, shape, number, data_start + offset)

    def _placed(self, place: int, name: str, shape: tuple[int, ...], number: int, start: int) -> Tensor:
        kind = TYPES.get(number)
        if kind is None:
            return Tensor(name, shape, None, number, start, start)
        if math.prod(shape) and shape[-1:] and shape[-1] % kind.numbers:
            raise self.damaged(
                place,
                f"tensor {name!r} has rows of {shape[-1]:,} numbers, where {kind.name} packs {kind.numbers} "
                "together",
            )
        end = start + math.prod(shape) // kind.numbers * kind.size
        tensor = Tensor(name, shape, kind, number, start, end)
        if end > self._size:
            raise self._too_short(place, tensor, self._size)
        return tensor

    def _too_short(self, place: int, tensor: Tensor, size: int) -> TableFormatError:
        kind, shape = tensor.type.name if tensor.type else "?", list(tensor.shape)
        return self.damaged(
            place,
            f"tensor {tensor.name!r}, {kind} {shape}, would end at byte {tensor.end:,} of a file "
            f"of {size:,}; is the download complete?",
        )

    def _alignment(self) -> int:
        found = self.numbers(ALIGNMENT_KEY)
        if found is None:
            return ALIGNMENT
        value = int(found[0]) if found.size == 1 else 0
        if value <= 0 or value & (value - 1):
            at = self.metadata[ALIGNMENT_KEY].start
            raise self.damaged(at, f"{ALIGNMENT_KEY} is {found.tolist()[:3]}, no power of two")
        return value


def string(text: bytes) -> bytes:
    """``text`` as the format writes it."""
    return _U64.pack(len(text)) + text


def entry(key: str, kind: int, value: bytes) -> bytes:
    """One metadata entry, its value already written."""
    return string(key.encode()) + _U32.pack(kind) + value


def array_of(kind: int, count: int, items: bytes) -> bytes:
    """An array's value, its items already written."""
    return _U32.pack(kind) + _U64.pack(count) + items


def tensor_entry(name: str, shape: tuple[int, ...], type_name: str, offset: int) -> bytes:
    """A tensor's description."""
    number = next(number for number, kind in TYPES.items() if kind.name == type_name)
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
    return string(name.encode()) + axes + _U32.pack(number) + _U64.pack(offset)


def start_of(tensors: int, entries: int) -> bytes:
    """A file's first bytes."""
    return MAGIC + _U32.pack(VERSIONS[-1]) + _U64.pack(tensors) + _U64.pack(entries)
