"""The rows of a static embedding's folder: as they are stored, or computed from what model2vec keeps of them.

The row of a token is ``embeddings[mapping[id]] * weights[id]``; a folder need have neither ``mapping`` nor
``weights``, and then its rows are mapped from the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tokenspace import rounding
from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.models.pickled import open_pickle
from tokenspace.models.safetensors import DTYPES, TensorInfo, open_file, read
from tokenspace.number_types import number_type
from tokenspace.shapes import Array

WEIGHTS = "model.safetensors"
TABLES = ("embeddings", "embedding.weight")
_PICKLE = "pytorch_model.bin"
_ROWS_AT_ONCE = 16_384


def tensors_of(inner: Path) -> dict[str, TensorInfo]:
    """What the folder's file of tensors holds, by name."""
    if not (inner / WEIGHTS).is_file() and (inner / _PICKLE).is_file():
        try:
            return open_pickle(inner / _PICKLE)
        except CheckpointError as error:
            raise TableFormatError(str(error)) from None
    if not (inner / WEIGHTS).is_file():
        raise TableFormatError(f"{inner} has no {WEIGHTS}; is the download complete?")
    return open_file(inner / WEIGHTS).tensors


def rows_of(
    inner: Path, tensors: dict[str, TensorInfo], tokens: int, limit: int | None
) -> tuple[Array, dict[str, Any]]:
    """A row for each id, and what had to be done for that."""
    name = next((name for name in TABLES if name in tensors), None)
    if name is None:
        raise TableFormatError(f"{inner}: {WEIGHTS} has neither {TABLES[0]!r} nor {TABLES[1]!r}")
    stored = _numbers(inner, tensors[name], "fi", 2)
    factors = _numbers(inner, tensors["weights"], "f", 1) if "weights" in tensors else None
    mapping = _numbers(inner, tensors["mapping"], "iu", 1) if "mapping" in tensors else None
    notes: dict[str, Any] = {"dtype": stored.dtype.name}
    rows = len(stored) if mapping is None else len(mapping)
    if factors is not None and len(factors) < tokens:
        raise TableFormatError(f"{inner}: 'weights' has {len(factors):,} entries for {tokens:,} tokens")
    rows = rows if factors is None else min(rows, len(factors))
    if rows < tokens:
        raise TableFormatError(
            f"{inner}: the tokenizer has {tokens:,} tokens, the table {rows:,} rows; each token needs its own"
        )
    rows = rows if limit is None else min(rows, limit)
    if mapping is not None:
        mapping = _checked_mapping(inner, mapping[:rows], len(stored))
        if np.array_equal(mapping, np.arange(rows)):
            mapping = None
        else:
            notes["mapping"] = f"{rows:,} tokens share {len(stored):,} rows"
    if factors is not None:
        notes["weights"] = "multiplied in"
    try:
        weight, changed = _computed(inner, stored, mapping, factors, rows)
    except MemoryError:
        raise TableFormatError(
            f"{inner}: memory can't hold {rows:,} tokens of {stored.shape[1]:,} numbers; limit= reads fewer"
        ) from None
    return weight, notes if changed is None else notes | rounding.read_from(changed)


def _numbers(inner: Path, tensor: TensorInfo, kinds: str, axes: int) -> Array:
    dtype = DTYPES.get(tensor.dtype)
    is_table = axes == 2 and tensor.dtype in ("F32", "F16", "BF16", "F64", "I8")
    if len(tensor.shape) != axes or not (
        is_table or (axes == 1 and dtype is not None and number_type(dtype).kind in kinds)
    ):
        raise TableFormatError(
            f"{tensor.path}: tensor {tensor.name!r} is {tensor.dtype} {tensor.shape}; here it must have "
            f"{axes} ax{'i' if axes == 1 else 'e'}s of {'numbers' if kinds != 'iu' else 'integers'}"
        )
    return read(tensor)


def _checked_mapping(inner: Path, mapping: Array, rows: int) -> Array:
    outside = np.flatnonzero((mapping < 0) | (mapping >= rows))
    if outside.size:
        first = int(outside[0])
        raise TableFormatError(
            f"{inner}: 'mapping' sends token {first:,} to row {int(mapping[first]):,} of a table of {rows:,}"
        )
    return mapping.astype(np.int64)


def _computed(
    inner: Path, stored: Array, mapping: Array | None, factors: Array | None, rows: int
) -> tuple[Array, Array | None]:
    """The rows; and which are other than they were, if they were float64."""
    held = stored.dtype.name in ("float32", "float16", "bfloat16")
    if mapping is None and factors is None and held:
        return stored[:rows], None
    weight, changed = np.empty((rows, stored.shape[1]), np.float32), np.zeros(rows, bool)
    for start in range(0, rows, _ROWS_AT_ONCE):
        ids = slice(start, min(start + _ROWS_AT_ONCE, rows))
        block = np.asarray(stored[ids] if mapping is None else stored[mapping[ids]], np.float64)
        if factors is not None:
            block = block * np.asarray(factors[ids], np.float64)[:, np.newaxis]
        weight[ids], changed[ids] = rounding.rounded(block, inner / WEIGHTS, start)
    return weight, changed if stored.dtype.name == "float64" else None
