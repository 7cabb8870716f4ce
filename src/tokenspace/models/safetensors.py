r"""safetensors files, opened by their header: every check before any tensor is touched.

Byte layout (https://github.com/huggingface/safetensors#format)::

    8 bytes   length of the header, unsigned, little-endian
    header    JSON: {"name": {"dtype": "F32", "shape": [V, D], "data_offsets": [begin, end]}, ...,
              "__metadata__": {"key": "value", ...}}
    data      the tensors, row-major, little-endian; offsets count from the data's first byte,
              and together they cover the data with neither hole nor overlap

A header is the word of whoever wrote the file. All of it is held against the file's size here, so that what
``open_file`` returns can be read without another check.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tokenspace.errors import TableFormatError
from tokenspace.models.safetensors_header import METADATA, members, metadata_of, wrong_entry
from tokenspace.number_types import number_type
from tokenspace.shapes import Array, Int
from tokenspace.source import Source, read_up_to

HEADER_LIMIT = 100_000_000  # bytes; the format's own reader refuses more
LARGEST = 2**63 - 1  # no index and no file offset is larger

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}
"""The format's types, by their names in NumPy and ml_dtypes. The bytes of a file are little-endian."""
_PACKED = ("F4", "F6_E2M3", "F6_E3M2")  # several numbers share a byte: listed, never read
_BITS = {"BOOL": 8} | {
    name: int(re.findall(r"\d+", name)[0]) for name in (*DTYPES, *_PACKED) if name != "BOOL"
}
_NAMES = {name: name for name in (*DTYPES, *_PACKED)}  # one text for all tensors of a dtype


class TensorInfo(NamedTuple):
    """One tensor of a file: what its bytes mean, and where they are, counted from the file's first byte.

    ``array`` holds the numbers themselves of a pickle; ``unpacked`` is, of a packed file, the byte
    at which all tensors begin, and their bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    path: Path
    start: int
    end: int
    array: Array | None = None
    unpacked: tuple[int, Array] | None = None


class SafetensorsFile:
    """A checked header: ``tensors`` by name, ``metadata``, and ``read``; no file stays open."""

    def __init__(self, path: Path, tensors: dict[str, TensorInfo], metadata: dict[str, str]) -> None:
        self.path = path
        self.tensors = tensors
        self.metadata = metadata

    def __repr__(self) -> str:
        return f"SafetensorsFile({str(self.path)!r}, {len(self.tensors)} tensors)"

    def read(self, name: str) -> Array:
        """The tensor ``name`` as a read-only memory map: no byte is read before it is used."""
        if name not in self.tensors:
            raise TableFormatError(f"{self.path} has no tensor {name!r}; it has {listed(self.tensors)}")
        return read(self.tensors[name])


def open_file(path: str | os.PathLike[str] | Source) -> SafetensorsFile:
    """Read and check the header of a safetensors file; one that a ``Source`` unpacks is held in memory.

    Raises ``TableFormatError``, naming the file and the byte, for whatever is not exactly as the format says:
    a header longer than the file, JSON that is none, a name given twice, an unknown dtype, bytes that don't
    fit a shape, tensors that overlap, leave a hole, or end before or after the file does.

    >>> import tempfile, os, numpy as np
    >>> from safetensors.numpy import save_file
    >>> path = os.path.join(tempfile.mkdtemp(), "table.safetensors")
    >>> save_file({"weight": np.arange(6, dtype=np.float32).reshape(3, 2)}, path)
    >>> file = open_file(path)
    >>> file.tensors["weight"].shape
    (3, 2)
    >>> file.read("weight")[1].tolist()
    [2.0, 3.0]
    """
    if not isinstance(path, Source):
        return _checked(Path(path), *_header_bytes(Path(path)))
    if not path.packed:
        return _checked(path.path, *_header_bytes(path.path))
    with path.open() as stream:
        length = _header_length(path.path, path.size, stream.read(8))
        held = read_up_to(stream, length)
        _check_whole_header(path.path, length, len(held))
        file = _checked(path.path, path.size, held)
        end = max((tensor.end for tensor in file.tensors.values()), default=8 + length)
        del held  # the numbers have memory of their own, and are aligned in it
        numbers = read_up_to(stream, end - 8 - length)
        if len(numbers) < end - 8 - length:
            last = max(file.tensors.values(), key=lambda tensor: tensor.end)
            raise _cut_off(path.path, last.name, end, 8 + length + len(numbers))
        if stream.read(1):
            raise TableFormatError(
                f"{path.path}: the tensors end at byte {end:,}, and bytes follow that belong to no tensor"
            )
    content = np.frombuffer(numbers, np.uint8)
    content.flags.writeable = False
    unpacked = (8 + length, content)  # one for all: an array for each would take more than its entry
    for name, tensor in file.tensors.items():
        file.tensors[name] = tensor._replace(unpacked=unpacked)
    return file


def read_metadata(source: Source) -> dict[str, str]:
    """The metadata in a file's header; of a packed file no more than the header is unpacked."""
    with source.open() as stream:
        length = _header_length(source.path, source.size, stream.read(8))
        header = read_up_to(stream, length)
    _check_whole_header(source.path, length, len(header))
    return metadata_of(source.path, header)


def _checked(path: Path, size: int | None, header: bytes | bytearray) -> SafetensorsFile:
    """The tensors and metadata of a header; ``size`` is the file's, None if only its end can tell."""
    data_start, metadata = 8 + len(header), {}
    tensors: dict[str, TensorInfo] = {}
    for name, entry in members(path, header):
        if name == METADATA:
            metadata = entry
        else:
            tensors[name] = _tensor(path, name, entry, data_start, size)
    _check_coverage(path, tensors.values(), data_start, size)
    return SafetensorsFile(path, tensors, metadata)


def read(tensor: TensorInfo) -> Array:
    """The tensor's numbers as a read-only ``np.memmap`` (a plain array if it has none); nothing is copied.

    Numbers keep the file's dtype; BF16 comes as ``ml_dtypes.bfloat16``. A file may place a tensor at any
    byte, so the array need not be aligned.
    """
    if tensor.array is not None:
        return tensor.array
    if tensor.dtype in _PACKED:
        raise TableFormatError(
            f"{tensor.path}: tensor {tensor.name!r} holds {tensor.dtype} numbers, packed several to a byte, "
            "which NumPy can't index; convert the file to BF16, F16 or F32 first"
        )
    dtype = number_type(DTYPES[tensor.dtype])
    if tensor.unpacked is not None:
        return bytes_of(tensor).view(dtype).reshape(tensor.shape)
    if tensor.start == tensor.end:  # NumPy before 2.2 can't map an empty range at a page's start
        empty = np.empty(tensor.shape, dtype)
        empty.flags.writeable = False
        return empty
    try:
        return np.memmap(tensor.path, dtype, mode="r", offset=tensor.start, shape=tensor.shape)
    except (OSError, ValueError) as error:
        raise TableFormatError(
            f"{tensor.path} changed since its header was read: can't map tensor {tensor.name!r} "
            f"(bytes {tensor.start:,} to {tensor.end:,}); {error}"
        ) from None


def bytes_of(tensor: TensorInfo) -> Int[Array, " bytes"]:
    """The bytes of a tensor that a safetensors file holds, mapped unless they are unpacked."""
    if tensor.unpacked is None:
        return np.memmap(tensor.path, np.uint8, "r", tensor.start, (tensor.end - tensor.start,))
    first, content = tensor.unpacked
    return content[tensor.start - first : tensor.end - first]


def listed(names: Iterable[str], at_most: int = 6) -> str:
    """Names for an error message: all of a few, else the first ones and how many more there are.

    >>> listed(["wte.weight", "wpe.weight"])
    "'wte.weight', 'wpe.weight'"
    >>> listed("abcd", at_most=2)
    "'a', 'b' and 2 more"
    """
    names = list(names)
    if not names:
        return "none"
    more = f" and {len(names) - at_most:,} more" if len(names) > at_most else ""
    return ", ".join(repr(name) for name in names[:at_most]) + more


def _header_bytes(path: Path) -> tuple[int, bytes]:
    """The file's size and the header's bytes; nothing is allocated that the file can't fill."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise TableFormatError(f"{path} is {kind}; a safetensors file is needed")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return size, file.read(_header_length(path, size, file.read(8)))
    except OSError as error:
        raise TableFormatError(f"can't read {path}: {error.strerror or error}") from None


def _header_length(path: Path, size: int | None, prefix: bytes) -> int:
    if len(prefix) < 8:
        found = len(prefix) if size is None else size
        if not found:
            raise TableFormatError(f"{path}: the file is empty; get or make it again")
        raise TableFormatError(
            f"{path} has {found} bytes, too few for a safetensors file: byte 0 starts an 8-byte length"
        )
    length = int.from_bytes(prefix, "little")
    if length > HEADER_LIMIT or (size is not None and length > size - 8):
        follow = "" if size is None else f"{size - 8:,} follow it and "
        raise TableFormatError(
            f"{path} is no safetensors file, or is cut off: byte 0 says {length:,} bytes of header, "
            f"but {follow}{HEADER_LIMIT:,} is the format's limit"
        )
    return length


def _check_whole_header(path: Path, length: int, found: int) -> None:
    if found < length:
        raise TableFormatError(
            f"{path} is no safetensors file, or is cut off: byte 0 says {length:,} bytes of header, "
            f"but {found:,} follow it"
        )


def _cut_off(path: Path, name: str, end: int, size: int) -> TableFormatError:
    return TableFormatError(
        f"{path}: tensor {name!r} in the header (from byte 8) ends at byte {end:,}, but the file ends at "
        f"byte {size:,}; is the download complete?"
    )


def _tensor(path: Path, name: str, entry: Any, data_start: int, size: int | None) -> TensorInfo:
    where = f"{path}: tensor {name!r} in the header (from byte 8)"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong_entry(path, name)
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or not (dtype in DTYPES or dtype in _PACKED):
        raise TableFormatError(f"{where} has dtype {dtype!r}; known are {', '.join([*DTYPES, *_PACKED])}")
    if not _sizes(shape) or len(shape) > 64:
        raise TableFormatError(f"{where} has a shape that is no list of at most 64 sizes: {_brief(shape)}")
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise TableFormatError(f"{where} has data_offsets that are no [begin, end]: {_brief(offsets)}")
    start, end = data_start + offsets[0], data_start + offsets[1]
    if size is not None and end > size:
        raise _cut_off(path, name, end, size)
    bits = _BITS[dtype]
    if math.prod(filter(None, shape)) * bits > 8 * LARGEST:  # an empty tensor's other axes count too
        raise TableFormatError(f"{where} has a shape too large to index: {_brief(shape)}")
    if math.prod(shape) * bits != 8 * (end - start):
        raise TableFormatError(
            f"{where} takes {end - start:,} bytes from byte {start:,}, but {dtype} {_brief(shape)} "
            f"needs {math.prod(shape) * bits / 8:,.10g}"
        )
    return TensorInfo(name, _NAMES[dtype], tuple(shape), path, start, end)


def _check_coverage(path: Path, tensors: Iterable[TensorInfo], data_start: int, size: int | None) -> None:
    at = data_start
    in_order = sorted(tensors, key=lambda tensor: tensor.end)
    in_order.sort(key=lambda tensor: tensor.start)  # stable; a key of two would take a tuple for each
    for tensor in in_order:
        if tensor.start != at:
            fault = "overlaps" if tensor.start < at else "leaves a hole after"
            raise TableFormatError(
                f"{path}: tensor {tensor.name!r} at byte {tensor.start:,} {fault} the tensors before it, "
                f"which end at byte {at:,}"
            )
        at = tensor.end
    if size is not None and at != size:
        raise TableFormatError(
            f"{path}: the tensors end at byte {at:,}, but the file has {size:,} bytes; "
            f"{size - at:,} belong to no tensor"
        )


def _sizes(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    return not value or (set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= LARGEST)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
