"""A table in GGUF, llama.cpp's one-file models: read out of any such file, and written as a small one.

======================================  =====================================================================
tensor or key                           meaning
======================================  =====================================================================
``token_embd.weight``                   the table, (V, D)
``output.weight``                       the head, where the file has one; in a file of others only if it isn't
                                        the table again
``tokenizer.ggml.tokens``               V strings: any bytes, a newline as well
``tokenizer.ggml.token_type``           a number a token: 2 unknown and 3 control are special here, 4 user-
                                        defined was added to the tokenizer
``tokenizer.ggml.model``                llama: ▁ begins a word; gpt2: bytes spelled as GPT-2 does
``tokenizer.huggingface.json``          the text of a ``tokenizer.json``
``tokenspace.encoding``                 how tokens mark where words begin, written by ``save``
``tokenspace.provenance``               JSON, written by ``save``
======================================  =====================================================================

A model may be in several files: ``gguf_split`` finds the others of one.

``gguf_header`` has the byte layout. F32, F16 and BF16 are mapped; F64 is rounded to float32; quantized types
are turned into float32 by the ``gguf`` package, and refused without it. Converters for llama.cpp spell BERT's
tokens with ▁ where a word begins and nothing for ##: they are kept as the file spells them.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, BinaryIO, get_args

import numpy as np

from tokenspace import bounded_json, rounding
from tokenspace.atomic import replacing
from tokenspace.errors import MissingExtra, ShapeError, TableFormatError
from tokenspace.formats import gguf_header as layout
from tokenspace.formats.gguf_header import MAGIC as MAGIC
from tokenspace.formats.gguf_header import Header, Tensor
from tokenspace.formats.gguf_split import Model, open_model
from tokenspace.formats.tokens import (
    READ_FROM,
    Errors,
    TokensRead,
    Verify,
    check_writable,
    counted,
    encoded,
    is_utf8,
    json_text,
    repeated,
)
from tokenspace.number_types import number_type
from tokenspace.shapes import Array, Float, Int
from tokenspace.source import Source
from tokenspace.table import Table, check_finite
from tokenspace.tokenizer import Tokenizer
from tokenspace.tokenizer_files import MOST_HOLES
from tokenspace.vocab import Encoding, Vocab, placeholder

NAME = "gguf"
WEIGHT, OUTPUT, OUTPUT_BIAS = "token_embd.weight", "output.weight", "output.bias"
TOKENS, TOKEN_TYPES, MODEL = "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.model"
TOKENIZER, ARCHITECTURE = "tokenizer.huggingface.json", "general.architecture"
ENCODING, PROVENANCE = "tokenspace.encoding", "tokenspace.provenance"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
SPECIAL = (_UNKNOWN, _CONTROL)
"""The types of special tokens."""
_ENCODINGS: dict[str | None, Encoding] = {
    "llama": "sentencepiece",
    "t5": "sentencepiece",
    "gpt2": "byte-level",
}
_MODELS = {"sentencepiece": "llama", "byte-level": "gpt2"}
_MAPPED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_FLOATS = _MAPPED | {"F64": "float64"}
_ROWS_AT_ONCE = 4096


def load(
    path: str | os.PathLike[str] | Source,
    errors: Errors = "strict",
    limit: int | None = None,
    tensor: str | None = None,
) -> Table:
    """Open the table in a GGUF file; float types stay on disk until used.

    Of a model in several files any may be named: the others are read from its folder. ``errors`` says what
    becomes of a token that is no UTF-8. ``limit``: the first rows only, and no tokenizer, whose ids would
    mean rows that are not there. ``tensor`` names the table, ``token_embd.weight`` or another, which is then
    read without an output. Rows past the last token are called ``[unused-row-N]``.

    ``TableFormatError`` names the byte of what is wrong, a missing file, or an output of another shape than
    the table; ``MissingExtra`` if the numbers are quantized and the ``gguf`` package is not there.
    """
    source = path if isinstance(path, Source) else Source(path)
    model = open_model(source, partial=tensor is not None)
    header, (part, found) = model.first, _table(model, source, tensor or WEIGHT)
    rows = found.shape[0] if limit is None else min(limit, found.shape[0])
    vocab, renamed = _vocabulary(header, found.shape[0], rows, errors)
    read_from: dict[str, Any] = {
        "file": source.path.name,
        "format": NAME,
        "dtype": found.type.name if found.type else str(found.number),
        "architecture": header.text(ARCHITECTURE),
        **renamed,
    }
    (weight, changed), (output, output_changed) = _numbers(part, found, rows), (None, None)
    head, made = model.find(OUTPUT), _provenance(header)
    dropped = [model.find(OUTPUT_BIAS)] if tensor is None else [] if tensor == OUTPUT else [head]
    if left_out := [each[1] for each in dropped if each is not None]:
        read_from["left_out"] = [f"{each.name} of shape {list(each.shape)}" for each in left_out]
    if head is not None and tensor is None:
        if head[1].shape != found.shape:
            raise TableFormatError(
                f"{head[0].source.path}: {OUTPUT!r} is {list(head[1].shape)}, the table {WEIGHT!r} "
                f"{list(found.shape)}; a table's output needs the same shape: to read the table without it, "
                f"name it with load(path, tensor={WEIGHT!r}) or convert --tensor {WEIGHT}"
            )
        if made is not None or not same_numbers((part, found), head, rows):
            output, output_changed = _numbers(*head, rows)  # ``save`` writes none that only repeats
    if rows_changed := [each for each in (changed, output_changed) if each is not None]:
        read_from |= rounding.read_from(*rows_changed)
    whole = rows == found.shape[0]
    provenance: dict[str, Any] = {READ_FROM: read_from} if made is None else made
    if not whole:
        provenance["rows_taken"] = rows
    try:
        table = Table(weight, vocab, _tokenizer(header) if whole else None, output, provenance)
    except ShapeError as error:
        raise TableFormatError(f"{source.path}: {error}") from None
    _check_made(table, source)
    return table


def _table(model: Model, source: Source, name: str) -> tuple[Header, Tensor]:
    """The tensor that is the table, and the file that holds it."""
    found = model.find(name)
    if found is None:
        some = ", ".join(sorted(model.names())[:6]) or "none"
        absent = f"; not looked into: {', '.join(model.missing[:6])}" if model.missing else ""
        raise TableFormatError(
            f"{source.path} has no tensor {name!r}, which is the table; it has {some}{absent}"
        )
    shape = found[1].shape
    if len(shape) != 2 or 0 in shape:
        raise TableFormatError(
            f"{source.path}: {name!r} has shape {list(shape)}; a table is (V, D), neither of them 0"
        )
    return found


def _vocabulary(header: Header, all_rows: int, rows: int, errors: Errors) -> tuple[Vocab, dict[str, int]]:
    """The tokens of the first ``rows`` rows, and how many are other than the file has them."""
    found = header.strings(TOKENS, rows)
    if found is None:
        raise TableFormatError(
            f"{header.source.path} has no {TOKENS!r} to name the table's rows; convert the model again, with "
            "its tokenizer"
        )
    data, offsets, places = found
    count = header.metadata[TOKENS].length
    if count > all_rows:
        raise header.damaged(
            header.metadata[TOKENS].start,
            f"{counted(count, 'token')} for a table of {counted(all_rows, 'row')}; each token needs a row",
        )
    tokens = TokensRead(header.source.path, errors)
    tokens.add(data, np.diff(offsets), lambda i: (f"token {i:,}", int(places[i])))
    if all_rows > 2 * count + MOST_HOLES:
        raise header.damaged(
            header.metadata[TOKENS].start,
            f"{counted(count, 'token')} for a table of {counted(all_rows, 'row')}; nearly all have no name: "
            "is the list cut off?",
        )
    for start in range(places.size, rows, _ROWS_AT_ONCE):
        unnamed = [placeholder(i).encode() for i in range(start, min(start + _ROWS_AT_ONCE, rows))]
        lengths = np.fromiter(map(len, unnamed), np.int64, len(unnamed))
        tokens.add(np.frombuffer(b"".join(unnamed), np.uint8), lengths, lambda i: ("no token", 0))
    read = tokens.vocab()
    special, added = (_of_types(header, types, count, places.size) for types in (SPECIAL, (_USER_DEFINED,)))
    encoding = _encoding(header)
    if encoding is None and header.text(MODEL) == "bert":  # llama.cpp's converters spell it with ▁
        encoding = "sentencepiece" if read.beginning_with("▁") else "wordpiece"
    vocab = Vocab.from_bytes(read.data, read.offsets, special, encoding, added)
    about = {"replaced_tokens": tokens.replaced} if tokens.replaced else {}
    if tokens.replaced and (repeats := repeated(vocab)):
        about["repeated_tokens"] = repeats
    return vocab, about


def _of_types(header: Header, types: tuple[int, ...], count: int, rows: int) -> list[int]:
    """The ids below ``rows`` whose token is of one of ``types``; ``count`` tokens need a type each."""
    kinds = header.numbers(TOKEN_TYPES)
    if kinds is None:
        return []
    if kinds.size != count:
        raise header.damaged(
            header.metadata[TOKEN_TYPES].start,
            f"{counted(kinds.size, 'token type')} for {counted(count, 'token')}; each needs its own",
        )
    return np.flatnonzero(np.isin(kinds[:rows], types)).tolist()


def _encoding(header: Header) -> Encoding | None:
    own = header.text(ENCODING)
    return own if own in get_args(Encoding) else _ENCODINGS.get(header.text(MODEL))  # type: ignore[return-value]


def _tokenizer(header: Header) -> Tokenizer | None:
    description = header.raw(TOKENIZER)
    if description is None:
        return None
    return Tokenizer.from_json(description, f"the tokenizer in {header.source.path}")


def _provenance(header: Header) -> dict[str, Any] | None:
    """What ``save`` wrote of the table's making; None in another's file."""
    text = header.raw(PROVENANCE)
    if text is None:
        return None
    try:
        made = bounded_json.parse(text)
    except ValueError as error:
        raise header.damaged(
            header.metadata[PROVENANCE].start, f"{PROVENANCE!r} is no JSON: {error}"
        ) from None
    if not isinstance(made, dict):
        raise header.damaged(header.metadata[PROVENANCE].start, f"{PROVENANCE!r} must be a JSON object")
    return made


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────────────


def _numbers(header: Header, tensor: Tensor, rows: int) -> tuple[Array, Array | None]:
    """The first ``rows`` rows: of a float type as they lie in the file, of others made float32. And of F64,
    which rows that changed.
    """
    if tensor.type is None:
        known = ", ".join(kind.name for kind in layout.TYPES.values() if not kind.name.startswith("I"))
        raise TableFormatError(
            f"{header.source.path}: {tensor.name!r} is of type {tensor.number:,}; known here are {known}"
        )
    size = (tensor.end - tensor.start) // tensor.shape[0]
    raw = header.content[tensor.start : tensor.start + rows * size]
    name, dim = tensor.type.name, tensor.shape[1]
    if name in _MAPPED:
        return raw.view(number_type(_MAPPED[name])).reshape(rows, dim), None
    if name == "F64":
        return rounding.rounded(
            raw.view("<f8").reshape(rows, dim), f"{header.source.path}, tensor {tensor.name!r}"
        )
    if name.startswith("I") and name[1:].isdigit():
        raise TableFormatError(f"{header.source.path}: {tensor.name!r} is {name}: whole numbers are no table")
    return _dequantized(header, tensor, raw.reshape(rows, size)), None


def _dequantized(header: Header, tensor: Tensor, packed: Int[Array, "V bytes"]) -> Float[Array, "V D"]:
    assert tensor.type is not None
    name = tensor.type.name
    try:
        from gguf import GGMLQuantizationType, quants
    except ImportError:
        raise MissingExtra(
            f"{header.source.path}: {tensor.name!r} is quantized as {name}, which", NAME
        ) from None
    weight = np.empty((len(packed), tensor.shape[1]), np.float32)
    try:
        kind = GGMLQuantizationType(tensor.number)
        for start in range(0, len(packed), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            with np.errstate(all="ignore"):  # damaged scales: what is not finite is refused below
                weight[block] = quants.dequantize(packed[block], kind)
    except (NotImplementedError, ValueError) as error:
        raise TableFormatError(
            f"{header.source.path}: {tensor.name!r} is quantized as {name}, which this version of the gguf "
            f"package does not turn into numbers ({error}); quantize the model again in another type"
        ) from None
    return weight


def same_numbers(table: tuple[Header, Tensor], head: tuple[Header, Tensor], rows: int) -> bool:
    """Return whether the head is the table again, number for number: in another float type, too."""
    (here, own), (there, other) = table, head
    if other.type != own.type or other.number != own.number:
        return _is_float(own) and _is_float(other) and _same_values(table, head, rows)
    size = (own.end - own.start) // own.shape[0] * rows
    step = 1 << 26
    a, b = here.content[own.start : own.start + size], there.content[other.start : other.start + size]
    return all(np.array_equal(a[i : i + step], b[i : i + step]) for i in range(0, size, step))


def _is_float(tensor: Tensor) -> bool:
    return tensor.type is not None and tensor.type.name in _FLOATS


def _same_values(table: tuple[Header, Tensor], head: tuple[Header, Tensor], rows: int) -> bool:
    """Return whether two matrices of different float types hold the same values, which float64 tells."""

    def block(header: Header, tensor: Tensor, first: int) -> Array:
        assert tensor.type is not None
        size = (tensor.end - tensor.start) // tensor.shape[0]
        raw = header.content[tensor.start + first * size : tensor.start + min(first + step, rows) * size]
        return raw.view(number_type(_FLOATS[tensor.type.name])).astype(np.float64)

    step = max(1, (1 << 22) // table[1].shape[1])
    return all(np.array_equal(block(*table, i), block(*head, i)) for i in range(0, rows, step))


def _check_made(table: Table, source: Source) -> None:
    """``TableFormatError`` if numbers that were made here, not mapped, hold NaN or infinity."""
    for name, matrix in (("table", table.weight), ("output table", table.output)):
        if matrix is None or matrix.base is not None:
            continue
        for start in range(0, len(table), _ROWS_AT_ONCE):
            try:
                check_finite(table, matrix[start : start + _ROWS_AT_ONCE], start, name)
            except TableFormatError as error:
                raise TableFormatError(f"{source.path}: {error}") from None


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────


def refusal(token: bytes) -> str | None:
    """Why a token can't be written; None if it can."""
    return None if is_utf8(token) else "it is not UTF-8; native can hold it"


def save(table: Table, path: str | os.PathLike[str], verify: Verify | None = None) -> None:
    """Write all of ``table``, its numbers in their own type, as a GGUF file of architecture "tokenspace".

    llama.cpp's own tools read its tensors and tokens; it is no model to run. ``VocabError`` if a token is no
    UTF-8, ``TableFormatError`` if the table holds NaN or infinity, ``OutputError`` if ``path`` can't be
    written.
    """
    check_writable(table.vocab, refusal, NAME, path)
    matrices = {WEIGHT: table.weight} | ({} if table.output is None else {OUTPUT: table.output})
    entries = _entries(table)
    head = layout.start_of(len(matrices), len(entries)) + b"".join(entries)
    offset = 0
    for name, matrix in matrices.items():
        kind = next(kind for kind, dtype in _MAPPED.items() if dtype == str(matrix.dtype))
        head += layout.tensor_entry(name, matrix.shape, kind, offset)
        offset += _padded(matrix.nbytes)
    with replacing(path) as fresh, fresh.open("wb") as file:
        file.write(head.ljust(_padded(len(head)), b"\0"))
        for name, matrix in matrices.items():
            _write(file, table, matrix, "table" if name == WEIGHT else "output table")
        file.flush()
        if verify:
            verify(partial(load, fresh))


def _entries(table: Table) -> list[bytes]:
    vocab, string = table.vocab, layout.string
    kinds = np.full(len(vocab), _NORMAL, "<i4")
    kinds[list(vocab.special)] = _CONTROL
    kinds[list(vocab.added)] = _USER_DEFINED
    tokens = b"".join(map(string, encoded(vocab)))
    texts = {
        ARCHITECTURE: "tokenspace",
        MODEL: _MODELS.get(vocab.encoding, "none"),
        ENCODING: vocab.encoding,
        PROVENANCE: json_text(table.provenance),
    }
    if table.tokenizer is not None:
        texts[TOKENIZER] = table.tokenizer.to_json()
    return [
        *(layout.entry(key, layout.STRING, string(text.encode())) for key, text in texts.items()),
        layout.entry(TOKENS, layout.ARRAY, layout.array_of(layout.STRING, len(vocab), tokens)),
        layout.entry(TOKEN_TYPES, layout.ARRAY, layout.array_of(layout.INT32, len(vocab), kinds.tobytes())),
    ]


def _write(file: BinaryIO, table: Table, matrix: Array, name: str) -> None:
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        rows = matrix[start : start + _ROWS_AT_ONCE]
        check_finite(table, np.asarray(rows, np.float32), start, name)
        file.write(np.ascontiguousarray(rows).tobytes())
    file.write(b"\0" * (_padded(matrix.nbytes) - matrix.nbytes))


def _padded(size: int) -> int:
    return -(-size // layout.ALIGNMENT) * layout.ALIGNMENT
