"""A file of tensors that is no table of ours: which of them is the table, and what names its rows.

A ``.safetensors`` file, or what ``torch.save`` wrote (``.bin``, ``.pt``, ``.pth``: a tensor, a dict of them,
or a dict with such a dict inside). The table is, in this order:

1. the one named by ``tensor``;
2. the input table of the model that ``config.json`` beside the file describes;
3. the one that bears a known family's name for its input table, whatever stands before it;
4. the only one with two axes;
5. ``embedding.weight``, ``embeddings``, ``weight`` and the like.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenspace import rounding
from tokenspace.errors import CheckpointError, ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.models.families import FAMILIES
from tokenspace.models.open import Checkpoint, same_bits
from tokenspace.models.pickled import open_pickle
from tokenspace.models.safetensors import DTYPES, TensorInfo, open_file, read
from tokenspace.models.shards import json_object
from tokenspace.models.vocabulary import Errors, for_file
from tokenspace.shapes import Array
from tokenspace.source import ZIP, Source
from tokenspace.table import DTYPES as TABLE_DTYPES
from tokenspace.table import Table, check_finite

PICKLE = b"\x80"
USUAL = (
    "embedding.weight",
    "embeddings.weight",
    "embed.weight",
    "emb.weight",
    "embedding",
    "embeddings",
    "weight",
    "weights",
    "vectors",
)
_ROWS_AT_ONCE = 16_384
_LISTED = 8


def load_file(
    path: str | os.PathLike[str] | Source,
    tensor: str | None = None,
    vocab: str | os.PathLike[str] | None = None,
    errors: Errors = "strict",
    limit: int | None = None,
) -> Table:
    """The table in one file of tensors, memory-mapped where it can be; a model's untied head is ``output``.

    ``tensor`` names the table where the names and shapes don't tell. ``vocab`` names the tokens: a folder of
    tokenizer files, one such file, or a file of one token a line; without it they are looked for beside the
    file (``x.vocab.txt``, ``tokenizer.json``, ``vocab.txt``, ``vocab.json`` with ``merges.txt``). float64 is
    rounded to float32, and ``provenance`` says in how many rows that changed a number. ``limit``: the first
    rows only, and no tokenizer. ``TableFormatError`` says what is wrong with any of these files;
    ``MissingExtra`` if torch is needed and not there.
    """
    source = path if isinstance(path, Source) else Source(path)
    try:
        tensors = _tensors(source)
        found, head = _chosen(source, tensors, tensor)
        rows, dim = found.shape
        if 0 in (rows, dim):
            raise TableFormatError(f"{source.path}: {found.name!r} is {[rows, dim]}; it holds no numbers")
        names, tokenizer, replaced = for_file(source, rows, vocab, errors, limit)
        read_from: dict[str, Any] = {
            "file": source.path.name,
            "format": _format(source),
            "tensor": found.name,
        }
        if head:
            read_from["head"] = head.name
        weight, changed = _numbers(found, limit)
        output, output_changed = (None, None) if head is None else _numbers(head, limit)
        if rows_changed := [each for each in (changed, output_changed) if each is not None]:
            read_from |= {"dtype": "float64", **rounding.read_from(*rows_changed)}
        if replaced:
            read_from["replaced_tokens"] = replaced
        provenance: dict[str, Any] = {"read_from": read_from}
        if limit is not None and limit < rows:
            tokenizer, provenance["rows_taken"] = None, limit
        table = Table(weight, names, tokenizer, output, provenance)
    except (CheckpointError, ShapeError, TokenIdError, VocabError) as error:
        raise TableFormatError(str(error)) from None
    if changed is not None:
        _check_made(table, weight, "table")
    if output is not None and output_changed is not None:
        _check_made(table, output, "output table")
    return table


def _check_made(table: Table, matrix: Array, name: str) -> None:
    """``TableFormatError`` if numbers that were made here, not mapped, hold NaN or infinity."""
    for start in range(0, len(table), _ROWS_AT_ONCE):
        check_finite(table, matrix[start : start + _ROWS_AT_ONCE], start, name)


def is_pickle(start: bytes, members: list[str]) -> bool:
    """Whether a file is what ``torch.save`` writes: told by its first bytes, or by what its archive holds."""
    if start.startswith(ZIP):
        return any(member.rsplit("/", 1)[-1] == "data.pkl" for member in members)
    return start.startswith(PICKLE)


def _format(source: Source) -> str:
    with source.open() as file:
        start = file.read(9)
    if start[4:] == b"\0\0\0\0{":  # a header's length may begin as a pickle does
        return "safetensors"
    return "torch" if start.startswith((ZIP, PICKLE)) else "safetensors"


def _tensors(source: Source) -> dict[str, TensorInfo]:
    return open_pickle(source) if _format(source) == "torch" else open_file(source).tensors


def _chosen(
    source: Source, tensors: dict[str, TensorInfo], name: str | None
) -> tuple[TensorInfo, TensorInfo | None]:
    """The table, and the head if the file holds one of the same shape that isn't the table again."""
    matrices = {each: found for each, found in tensors.items() if len(found.shape) == 2}
    if name is not None:
        if name not in matrices:
            what = f"{name!r} has shape {list(tensors[name].shape)}" if name in tensors else f"no {name!r}"
            raise TableFormatError(
                f"{source.path}: {what}, where a table is (V, D); it has {_listed(matrices)}"
            )
        return matrices[name], None
    told = _by_config(source, tensors) or _by_family(matrices)
    if told is not None:
        table, head = told
        fits = head is not None and head.shape == table.shape and not same_bits(head, table)
        return table, head if fits else None
    if len(matrices) == 1:
        return next(iter(matrices.values())), None
    usual = next((matrices[each] for each in USUAL if each in matrices), None)
    if usual is not None:
        return usual, None
    raise TableFormatError(
        f"{source.path}: which tensor is the table? name it with load(path, tensor=...) or "
        f"convert --tensor NAME, from {_listed(matrices)}"
    )


def _by_config(source: Source, tensors: dict[str, TensorInfo]) -> tuple[TensorInfo, TensorInfo | None] | None:
    """The input table and head of the model that ``config.json`` beside the file describes."""
    config = source.path.with_name("config.json")
    if not os.path.isfile(config):
        return None
    try:
        checkpoint = Checkpoint(source.path.parent, json_object(config), tensors)
        return checkpoint.input_embedding, checkpoint.head
    except CheckpointError:
        return None  # it may be of something else: the names may tell


def _by_family(matrices: dict[str, TensorInfo]) -> tuple[TensorInfo, TensorInfo | None] | None:
    """The one tensor that a family calls its input table, and the head by those families' name for it."""
    found = bearing_family_names(matrices)
    if not found:
        return None
    first, *others = (matrices[name] for name in found)
    if not all(same_bits(first, other) for other in others):
        return None
    heads = {name: matrices[name] for name in set().union(*found.values()) if name in matrices}
    heads = {name: head for name, head in heads.items() if name not in found}
    return first, next(iter(heads.values())) if len(heads) == 1 else None


def bearing_family_names(names: Iterable[str]) -> dict[str, set[str]]:
    """Those of ``names`` that end as some family calls its input table, with those families' heads.

    >>> bearing_family_names(["module.transformer.wte.weight", "module.transformer.h.0.ln_1.weight"])
    {'module.transformer.wte.weight': {'lm_head.weight'}}
    """
    found: dict[str, set[str]] = {}
    for name in names:
        for family in FAMILIES:
            if name == family.token or name.endswith("." + family.token):
                found.setdefault(name, set()).add(family.head)
    return found


def _numbers(tensor: TensorInfo, limit: int | None) -> tuple[Array, Array | None]:
    """A table's numbers; and which rows are other than in the file, where these had to be made float32."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype is not None and dtype == np.float64:
        return rounding.rounded(read(tensor)[:limit], f"{tensor.path}, tensor {tensor.name!r}")
    if dtype not in TABLE_DTYPES:
        raise TableFormatError(
            f"{tensor.path}: tensor {tensor.name!r} is {tensor.dtype}; a table must be F32, F16, BF16 or F64"
        )
    return read(tensor)[:limit], None


def _listed(matrices: dict[str, TensorInfo]) -> str:
    """The candidates with their shapes."""
    if not matrices:
        return "no tensor with two axes"
    some = [f"{name!r} {list(found.shape)}" for name, found in list(matrices.items())[:_LISTED]]
    more = len(matrices) - _LISTED
    return ", ".join(some) + (f" and {more:,} more" if more > 0 else "")
