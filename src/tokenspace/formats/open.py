"""Opening and writing tables, whatever the format and wherever they lie."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from tokenspace.errors import OutputError, ShapeError, TableFormatError
from tokenspace.formats import (
    fasttext,
    gguf,
    glove,
    hub,
    native,
    npz,
    numpy,
    packing,
    static_embedding,
    word2vec,
)
from tokenspace.formats.selection import checked_limit, needed, selected
from tokenspace.formats.sniff import sniff, sniff_source, table_source
from tokenspace.formats.tokens import Errors, Refusal, Verify, refused_marked
from tokenspace.models.open import load_table
from tokenspace.models.plain import load_file
from tokenspace.shapes import ArrayLike
from tokenspace.source import Source, archive_of
from tokenspace.table import DTYPES, Table, check_unchanged

_DATA = Path(__file__).parent.parent / "data"
BUILT_IN = {"wordnet": _DATA / "wordnet.safetensors"}
FETCHED_FROM = "fetched_from"  # a key of provenance
PARTS = frozenset({"tokenizer", "output", "subwords", "special", "provenance"})


def _any(token: bytes) -> None:
    return None


class Format(NamedTuple):
    """One way to keep a table in a file or folder.

    ``save`` is None where a format is only read. ``refusal`` says why a token (bytes) can't be written, or
    None, and ``refusal_of_first`` why a file can't begin with it; ``dtypes`` are kept, others become float32;
    ``keeps`` names the parts that are kept, of ``PARTS``.
    """

    load: Callable[..., Table]
    save: Callable[[Table, Path, Verify | None], None] | None
    refusal: Refusal
    dtypes: tuple[str, ...]
    keeps: frozenset[str] = frozenset()
    refusal_of_first: Refusal = _any


def _checkpoint(folder: Path, errors: Errors, limit: int | None, tensor: str | None = None) -> Table:
    return load_table(folder, tensor, limit)


_float32 = ("float32",)
_float16 = (*_float32, "float16")
FORMATS = {
    "native": Format(native.load, native.save, _any, DTYPES, PARTS),
    "word2vec-text": Format(word2vec.load, word2vec.save_text, word2vec.refusal_of_text, _float32),
    "word2vec-binary": Format(word2vec.load, word2vec.save_binary, word2vec.refusal, _float32),
    "glove": Format(glove.load, glove.save, glove.refusal, _float32, refusal_of_first=glove.refusal_of_first),
    "numpy": Format(numpy.load, numpy.save, numpy.refusal, _float16, refusal_of_first=refused_marked),
    "npz": Format(npz.load, npz.save, _any, _float16, frozenset({"output"})),
    "gguf": Format(gguf.load, gguf.save, gguf.refusal, DTYPES, PARTS - {"subwords"}),
    "static-embedding": Format(
        static_embedding.load,
        static_embedding.save,
        static_embedding.refusal,
        _float16,
        frozenset({"tokenizer", "special", "provenance"}),
    ),
    "fasttext": Format(fasttext.load, None, _any, _float32),
    "tensors": Format(load_file, None, _any, DTYPES, frozenset({"tokenizer", "output", "special"})),
    "checkpoint": Format(_checkpoint, None, _any, DTYPES, frozenset({"tokenizer", "output", "special"})),
}
_TAKEN_BY = {
    "tensor": ({"tensors", "checkpoint", "gguf"}, "a model's tensors"),
    "vocab": ({"tensors", "numpy", "npz"}, "a file of tensors, a .npy or .npz"),
}
WRITABLE = [name for name, format in FORMATS.items() if format.save]
PACKED = ["word2vec-text", "word2vec-binary", "glove"]  # read in order, and so written with gzip too
SUFFIXES = {
    ".vec": "word2vec-text",
    ".bin": "word2vec-binary",
    ".txt": "glove",
    ".npy": "numpy",
    ".npz": "npz",
    ".gguf": "gguf",
}


def load(
    source: str | os.PathLike[str] = "wordnet",
    limit: Any = None,
    rows: slice | ArrayLike | None = None,
    errors: str = "strict",
    tensor: str | None = None,
    vocab: str | os.PathLike[str] | None = None,
) -> Table:
    """Open a table: a built-in name, a file of any format in ``FORMATS``, or a model's folder.

    A file's first bytes say what it is; its name does not matter. It may be compressed with gzip, or lie in a
    zip archive (``all.zip/x.txt`` where there are several). ``hf:org/name`` is fetched from Hugging Face. A
    file in the working directory that has a built-in table's name is reached as ``./wordnet``.

    ``limit`` reads the first so many rows and no more of the file than they need; ``rows`` (a slice, or ids)
    takes these, numbered anew. ``errors`` says what becomes of a token that is no UTF-8: "strict" refuses the
    file, "replace" puts U+FFFD, "surrogateescape" keeps the bytes. ``tensor`` names the table where a
    model's files leave that open, and ``vocab`` the tokens of a file of tensors, a ``.npy`` or ``.npz``
    without them: a folder of tokenizer files, one such file, or a file of one token a line.

    ``TableFormatError`` or ``CheckpointError`` say what is wrong with anything else.

    >>> load("wordnet").dim, list(load("wordnet", rows=[1, 0]).vocab)
    (100, ['[UNK]', '[PAD]'])
    """
    limit = checked_limit(limit)
    if errors not in ("strict", "replace", "surrogateescape"):
        raise ShapeError(f"errors {errors!r} is not known; allowed: strict, replace, surrogateescape")
    if rows is not None:
        if limit is not None:
            raise ShapeError("limit and rows can't both be given: rows=range(n) takes the first n")
        limit = needed(rows)
    table = _read(located(source), limit, cast(Errors, errors), {"tensor": tensor, "vocab": vocab})
    if table.tokenizer is not None and limit is not None and len(table.tokenizer.vocab) > len(table):
        table.tokenizer = None  # it gives ids that have no row now
    if hub.is_name(source):
        table.provenance = table.provenance | {FETCHED_FROM: str(source)}
    return table if rows is None else selected(table, rows)


def located(source: str | os.PathLike[str]) -> Path:
    """Where the table that ``source`` names lies: a file, an archive's member, or a folder.

    ``hf:org/name`` is fetched first, if it is not there yet.
    """
    if source in BUILT_IN:
        return BUILT_IN[str(source)]
    if hub.is_name(source):
        return hub.fetch(str(source))
    if not os.fspath(source):
        raise TableFormatError(f"no table was named; name a file, a folder, or one of {', '.join(BUILT_IN)}")
    return Path(source)


def _read(place: Path, limit: int | None, errors: Errors, model: dict[str, Any]) -> Table:
    _check_there(place)
    source: Path | Source
    if os.path.isdir(place):
        source, name = place, sniff(place)
    else:
        source = table_source(place)
        name = sniff_source(source)
        if name == "tensors" and source.file == source.path and static_embedding.is_static(place.parent):
            source, name = place.parent, static_embedding.NAME  # whose tokens only the folder tells
    given = {key: value for key, value in model.items() if value is not None}
    for key in given:
        takers, which = _TAKEN_BY[key]
        if name not in takers:
            raise ShapeError(f"{key} is for {which}; {place} is {name}")
    return FORMATS[name].load(source, errors=errors, limit=limit, **given)


def _check_there(place: Path) -> None:
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file can have the name: ValueError
        if archive_of(place) is None:
            raise TableFormatError(
                f"there is no table {str(place)!r}: neither a file or folder nor a built-in one "
                f"({', '.join(BUILT_IN)})"
            ) from None
    except OSError as error:
        raise TableFormatError(f"can't read {place}: {error.strerror}") from None


def save(table: Table, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write ``table`` in ``format``, a name in ``WRITABLE``; with none, the suffix decides: ``.vec``
    word2vec-text, ``.bin`` word2vec-binary, ``.txt`` glove, ``.npy``, ``.npz``, ``.gguf``; a
    name that ends in ``/``: a static-embedding folder; any other: native. ``.vec.gz``, ``.bin.gz`` and
    ``.txt.gz`` are compressed.

    Only native holds all of a table; ``formats.convert`` names what another leaves out. ``TableFormatError``
    if the table holds NaN or infinity, ``VocabError`` if the format can't hold a token, ``OutputError`` if
    ``path`` can't be written: then what was there before is untouched.
    """
    check_unchanged(table)
    name = format_for(path, format)
    writer(name, path)(table, output_path(path), None)


def writer(format: str, path: str | os.PathLike[str]) -> Callable[[Table, Path, Verify | None], None]:
    """What writes ``format``; ``TableFormatError`` if it is only read, ``OutputError`` if ``path`` means an
    archive that is not written.
    """
    save = FORMATS[format].save
    if save is None:
        raise TableFormatError(f"{format} is read here, not written; formats to write: {', '.join(WRITABLE)}")
    if _gzipped(path) and format not in PACKED:
        raise OutputError(
            f"can't write {path}: with gzip are written {', '.join(PACKED)}; {format} is opened in place, "
            "which a compressed file can't be: leave .gz out"
        )
    if Path(path).suffix.lower() == ".zip":
        raise OutputError(f"can't write {path}: zip archives are read, not written; name a table's file")
    return save


def output_path(path: str | os.PathLike[str]) -> Path:
    """``path``; ``OutputError`` if it names nothing, or what no file can be named."""
    if not os.fspath(path):
        raise OutputError("no file to write was named; name one")
    if hub.is_name(path):
        raise OutputError(f"can't write {path}: the hub is read, not written; name a file here")
    try:
        possible = b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        possible = False
    if not possible:
        raise OutputError(f"can't write {str(path)!r}: no file has such a name")
    return Path(path)


def _gzipped(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() == packing.SUFFIX


def files_of(path: Path, format: str) -> list[Path]:
    """The files that a table of ``format`` at ``path`` is."""
    return [path, numpy.vocabulary_path(path)] if format == numpy.NAME else [path]


def format_for(path: str | os.PathLike[str], format: str | None = None) -> str:
    """The format that ``save`` writes: the one named, else the suffix's."""
    if format is None:
        if os.fspath(path).endswith("/"):
            return static_embedding.NAME
        plain = Path(path).with_suffix("") if _gzipped(path) else Path(path)
        return SUFFIXES.get(plain.suffix.lower(), "native")
    if not isinstance(format, str) or format not in FORMATS:
        raise TableFormatError(f"there is no table format {format!r}; there are {', '.join(FORMATS)}")
    return format
