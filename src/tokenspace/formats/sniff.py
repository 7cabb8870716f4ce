"""What a file holds is told by its first bytes, or by an archive's members; never by its name."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from tokenspace.errors import TableFormatError
from tokenspace.formats import fasttext, foreign, gguf, native, npy, npz, numpy, static_embedding, word2vec
from tokenspace.formats import rows as text_rows
from tokenspace.models.plain import is_pickle
from tokenspace.models.safetensors import read_metadata
from tokenspace.source import ZIP, Source

_ENOUGH = 1 << 16  # bytes that tell every format but those of text
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # of a folder
_SAFETENSORS = "safetensors"  # native or tensors, as its metadata says
_MEMBERS_LOOKED_AT = 64  # of an archive


def sniff(path: str | os.PathLike[str]) -> str:
    r"""The format of a table's file or folder, a name in ``FORMATS``; ``TableFormatError`` if it is none.

    ======================================================  ======================================
    begins with                                             format
    ======================================================  ======================================
    8 bytes of length, then ``{``                           native; tensors, without our metadata
    ``\x93NUMPY``                                           numpy
    ``GGUF``                                                gguf
    fastText's magic number, 793712314                      fasttext
    a zip archive of ``.npy`` files                         npz
    a zip archive with ``data.pkl``, or a pickle            tensors (torch's)
    a line of two integers, then text or binary rows        word2vec-text, word2vec-binary
    a line that ends in a space and a number                glove
    a folder with ``modules.json`` or model2vec's config    static-embedding
    another folder                                          checkpoint
    ======================================================  ======================================
    """
    if os.path.isdir(path):
        if not os.path.isfile(Path(path) / "config.json") and (fault := _folder_fault(Path(path))):
            raise TableFormatError(f"{path} {fault}")
        return static_embedding.NAME if static_embedding.is_static(path) else "checkpoint"
    return sniff_source(table_source(path))


def _folder_fault(path: Path) -> str | None:
    with contextlib.suppress(OSError):  # a folder that can't be listed is named by what reads it
        return foreign.folder(path)
    return None


def table_source(path: str | os.PathLike[str]) -> Source:
    """The file at ``path``, or the one table in the zip archive there; ``TableFormatError`` names several."""
    source = Source(path)
    names = source.members()
    if not names or npz.holds_arrays(names) or is_pickle(ZIP, names):
        return source
    if any(_is_folder(name, names) for name in names if name.endswith(_WEIGHTS)):
        raise TableFormatError(f"{source.path} holds a model's folder; unpack it and name that")
    found, faults = [], []
    candidates = [name for name in dict.fromkeys(names) if not _beside(name)]
    for name in candidates[:_MEMBERS_LOOKED_AT]:
        try:
            member = source.member(name)
            _recognized(member)
        except TableFormatError as error:
            faults.append(error)
            continue
        found.append(member)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(str(member.path) for member in found[:6])
        raise TableFormatError(f"{source.path} holds {len(found)} tables; name one of them: {listed}")
    if len(candidates) == 1 and faults:
        raise faults[0]
    looked = f" in its first {_MEMBERS_LOOKED_AT} files" if len(candidates) > _MEMBERS_LOOKED_AT else ""
    first = f"; {faults[0]}" if faults else ""
    raise TableFormatError(f"{source.path} holds no table in a format known here{looked}; name one{first}")


def _beside(name: str) -> bool:
    """Whether a member is no table of its own: the tokens of an array, or what macOS adds."""
    return name.endswith(".vocab.txt") or name.startswith("__MACOSX/")


def _is_folder(name: str, names: list[str]) -> bool:
    """Whether a member lies beside the settings of a model."""
    folder = name.rpartition("/")[0]
    return any(f"{folder}/{each}".lstrip("/") in names for each in ("config.json", "modules.json"))


def sniff_source(source: Source) -> str:
    """``sniff`` for a file that is already found."""
    name = _recognized(source)
    if name == _SAFETENSORS:
        return "native" if native.KEY in read_metadata(source) else "tensors"
    return name


def _recognized(source: Source) -> str:
    """``sniff_source`` by the file's first bytes alone: a safetensors file's header is not parsed."""
    with source.open() as file:
        head = file.read(_ENOUGH)
        if not head:
            raise TableFormatError(f"{source.path}: the file is empty; get or make it again")
        if name := _by_magic(source, head):
            return name
        head += file.read(text_rows.longest_line(1 << 16) - len(head))
    word2vec.check_unmarked(source.path, head)
    if found := word2vec.header(head):
        return "word2vec-binary" if word2vec.is_binary(head[found.end :], found.dim) else "word2vec-text"
    fault = foreign.text(head)
    if fault is None and text_rows.width(head.split(b"\n", 1)[0]):
        return "glove"
    raise TableFormatError(f"{source.path} {_fault(source, head, fault)}")


def _fault(source: Source, head: bytes, fault: str | None) -> str:
    """What a file that is no table is, and what to do."""
    if not head.strip():
        return "holds nothing but white space: the file is empty; get or make it again"
    blank = re.match(rb"(?:[ \t\r]*\n)+", head)
    if blank and fault is None:
        first = head[blank.end() :]
        if word2vec.header(first) or text_rows.width(first.split(b"\n", 1)[0]):
            return "begins with an empty line, where its first row or its header must stand: take it away"
    if head.startswith(ZIP) and source.packed:
        return "is an archive within an archive; unpack the outer one first"
    if known := foreign.binary(head) or fault or foreign.by_name(source.path.name):
        return known
    return (
        f"is no table in a format known here; its start is {head[:16]!r}. Read here are native, word2vec, "
        "GloVe, fastText, .npy, .npz, GGUF, safetensors and torch's files, and models' folders"
    )


def _by_magic(source: Source, head: bytes) -> str | None:
    if head[4:9] == b"\0\0\0\0{":
        return _SAFETENSORS
    if head.startswith(npy.MAGIC):
        return numpy.NAME
    if head.startswith(gguf.MAGIC) and b"\0" in head[4:8]:  # its version, where a text has more text
        return gguf.NAME
    members = source.members()
    if npz.holds_arrays(members):
        return npz.NAME
    if is_pickle(head, members):
        if other := foreign.pickle(head):
            raise TableFormatError(f"{source.path} {other}")
        return "tensors"
    return fasttext.NAME if fasttext.is_model(head) else None
