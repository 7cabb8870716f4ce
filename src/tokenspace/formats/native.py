"""tokenspace's own file: one ``.safetensors`` that holds the table and every token, whatever its characters.

==================  ==========================  ===========================================================
tensor              dtype, shape                meaning
==================  ==========================  ===========================================================
``weight``          F32, F16 or BF16, (V, D)    the table
``output``          as ``weight``, optional     skip-gram's context matrix, or an untied head
``tokens.bytes``    U8, (bytes)                 the tokens end to end, UTF-8 or raw bytes
``tokens.offsets``  I64, (V + 1)                token i is ``bytes[offsets[i] : offsets[i + 1]]``
``tokenizer``       U8, (bytes), optional       the text of a ``tokenizer.json``
``subwords``        F32, (B, D), optional       rows of character n-grams (see ``tokenspace.subwords``)
==================  ==========================  ===========================================================

The metadata holds one key, ``tokenspace``: JSON with ``format`` (1), ``special`` (ids), ``encoding`` and
``provenance``; where there are any, ``added``, the ids of tokens added to a tokenizer; and, with the tensor
``subwords``, an object ``subwords`` of ``minn`` and ``maxn``. Equal tables are equal bytes. Opening reads the
header and maps the rest: neither rows nor tokens are parsed. Of a packed file all is in memory.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from tokenspace import bounded_json
from tokenspace.atomic import replacing
from tokenspace.errors import ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.formats.tokens import Errors, Verify, json_text
from tokenspace.models.safetensors import SafetensorsFile, open_file
from tokenspace.shapes import Array
from tokenspace.source import Source
from tokenspace.subwords import Subwords
from tokenspace.table import Table, check_finite
from tokenspace.tokenizer import Tokenizer
from tokenspace.vocab import Vocab

FORMAT = 1
KEY = "tokenspace"
ROWS_AT_ONCE = 16_384
_SHOWN = 80  # characters of a wrong value


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write ``table`` to ``path``: the old file or the new one is there at any moment, never half of one.

    ``TableFormatError`` if the table holds NaN or infinity, ``OutputError`` if ``path`` can't be written.
    """
    from safetensors.numpy import save_file

    matrices = {"table": table.weight} | ({} if table.output is None else {"output table": table.output})
    for name, matrix in matrices.items():
        for start in range(0, len(table), ROWS_AT_ONCE):
            check_finite(table, np.asarray(matrix[start : start + ROWS_AT_ONCE], np.float32), start, name)
    tensors: dict[str, Array] = {
        "weight": np.ascontiguousarray(table.weight),
        "tokens.bytes": np.ascontiguousarray(table.vocab.data),
        "tokens.offsets": np.ascontiguousarray(table.vocab.offsets),
    }
    if table.output is not None:
        tensors["output"] = np.ascontiguousarray(table.output)
    if table.tokenizer is not None:
        tensors["tokenizer"] = np.frombuffer(table.tokenizer.to_json().encode("utf-8"), np.uint8)
    about: dict[str, Any] = {
        "format": FORMAT,
        "special": list(table.vocab.special),
        "encoding": table.vocab.encoding,
        "provenance": table.provenance,
    }
    if table.vocab.added:
        about["added"] = list(table.vocab.added)
    if table.subwords is not None:
        _check_subwords(table.subwords)
        tensors["subwords"] = np.ascontiguousarray(table.subwords.rows)
        about["subwords"] = {"minn": table.subwords.minn, "maxn": table.subwords.maxn}
    metadata = {KEY: json_text(about)}  # one key: safetensors does not keep the order of several
    with replacing(path) as fresh:
        save_file(tensors, str(fresh), metadata)
        if verify:
            verify(partial(load, fresh))


def _check_subwords(subwords: Subwords) -> None:
    for start in range(0, len(subwords.rows), ROWS_AT_ONCE):
        finite = np.isfinite(subwords.rows[start : start + ROWS_AT_ONCE]).all(axis=1)
        if not finite.all():
            raise TableFormatError(
                f"row {start + int(np.argmin(finite)):,} of the subwords holds NaN or infinity; the model "
                "that they come from is damaged, or its training diverged: get or make it again"
            )


def is_native(file: SafetensorsFile) -> bool:
    """Whether an open safetensors file is a table of ours, by its metadata."""
    return KEY in file.metadata


def load(path: str | os.PathLike[str] | Source, errors: Errors = "strict", limit: int | None = None) -> Table:
    """Open a native file; rows and tokens stay on disk until used. ``TableFormatError`` if it is none.

    ``limit``: the first rows only, and no tokenizer, whose ids would mean rows that are not there. Every
    token is kept as it is, so that there is nothing for ``errors`` to say.
    """
    return from_file(open_file(path if isinstance(path, Source) else Source(path)), limit)


def from_file(file: SafetensorsFile, limit: int | None = None) -> Table:
    """The table in a safetensors file whose header is already open."""
    about = _about(file)
    _check_tensors(file)
    rows = file.tensors["tokens.offsets"].shape[0] - 1
    whole = limit is None or limit >= rows
    tokenizer = None
    if "tokenizer" in file.tensors and whole:
        tokenizer = Tokenizer.from_json(file.read("tokenizer").tobytes(), f"the tokenizer in {file.path}")
    try:
        matrices = {name: file.read(name) for name in ("weight", "output") if name in file.tensors}
        if not whole:
            matrices = {name: _first_rows(matrix, rows, limit) for name, matrix in matrices.items()}
        return Table(
            matrices["weight"],
            _vocab(file, about, None if whole else limit),
            tokenizer,
            matrices.get("output"),
            about["provenance"] if whole else about["provenance"] | {"rows_taken": limit},
            _subwords(file, about),
        )
    except (ShapeError, TokenIdError, VocabError) as error:
        raise TableFormatError(f"{file.path}: {error}") from None


def _check_tensors(file: SafetensorsFile) -> None:
    for name in ("weight", "tokens.bytes", "tokens.offsets"):
        if name not in file.tensors:
            raise TableFormatError(f"{file.path} has no tensor {name!r}, which a tokenspace table needs")
    for name, dtype in (("tokens.bytes", "U8"), ("tokens.offsets", "I64"), ("tokenizer", "U8")):
        found = file.tensors.get(name)
        if found is not None and (found.dtype != dtype or len(found.shape) != 1):
            raise TableFormatError(
                f"{file.path}: tensor {name!r} must be one axis of {dtype}, found {found.dtype} {found.shape}"
            )


def _first_rows(matrix: Array, rows: int, limit: int | None) -> Array:
    if matrix.ndim != 2 or len(matrix) != rows:
        raise ShapeError(f"a matrix of shape {matrix.shape} for a vocabulary of {rows:,} tokens")
    return matrix[:limit]


def _vocab(file: SafetensorsFile, about: dict[str, Any], limit: int | None) -> Vocab:
    data, offsets = file.read("tokens.bytes"), file.read("tokens.offsets")
    if limit is None:
        return Vocab.from_bytes(data, offsets, about["special"], about["encoding"], about.get("added", ()))
    end = int(offsets[limit])
    data = data[: end if 0 <= end <= data.size else 0]
    special, added = (
        [i for i in about.get(key, ()) if not limit <= i < len(offsets) - 1] for key in ("special", "added")
    )
    return Vocab.from_bytes(data, offsets[: limit + 1], special, about["encoding"], added)


def _subwords(file: SafetensorsFile, about: dict[str, Any]) -> Subwords | None:
    if "subwords" not in file.tensors:
        return None
    lengths = about.get("subwords")
    if not isinstance(lengths, dict) or not all(type(lengths.get(n)) is int for n in ("minn", "maxn")):
        raise TableFormatError(
            f"{file.path}: its tensor 'subwords' needs the n-grams' lengths in the metadata: "
            f"{{'minn': …, 'maxn': …}}; found {_brief(lengths)}"
        )
    return Subwords(file.read("subwords"), lengths["minn"], lengths["maxn"])


def _about(file: SafetensorsFile) -> dict[str, Any]:
    if not is_native(file):
        raise TableFormatError(
            f"{file.path} holds no tokenspace table (it has no {KEY!r} metadata); "
            "for a model's tensors, name the folder that holds them and the tokenizer"
        )
    try:
        about = bounded_json.parse(file.metadata[KEY].encode("utf-8"), parse_constant=_refused)
    except ValueError as error:
        raise TableFormatError(f"{file.path}: its {KEY!r} metadata is not JSON: {error}") from None
    if not isinstance(about, dict) or type(about.get("format")) is not int or about["format"] != FORMAT:
        found = about.get("format") if isinstance(about, dict) else about
        raise TableFormatError(
            f"{file.path} is a table of format {_brief(found)}; this version reads format {FORMAT}: "
            "a newer tokenspace may have written it"
        )
    encoding = about.get("encoding")
    for key, ids in (("special", about.get("special")), ("added", about.get("added", []))):
        if not isinstance(ids, list) or not all(type(i) is int for i in ids):
            raise TableFormatError(
                f"{file.path}: {key!r} in its metadata must be a list of ids, found {_brief(ids)}"
            )
    if encoding not in ("word", "wordpiece", "byte-level", "sentencepiece"):
        raise TableFormatError(f"{file.path}: unknown token encoding {_brief(encoding)} in its metadata")
    if not isinstance(about.get("provenance"), dict):
        raise TableFormatError(f"{file.path}: 'provenance' in its metadata must be an object")
    return about


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON number")


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
