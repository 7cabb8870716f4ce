"""A file of tensors that is no table of ours: which of them is the table, and what names its rows.

A ``.safetensors`` file, or what ``torch.save`` wrote (``.bin``, ``.pt``, ``.pth``: a tensor, a dict of them,
or a dict with such a dict inside). The table is, in this order:

1. the one named by ``tensor``;
2. the input table of the model that ``config.json`` in the same folder describes;
3. the one with a known family's name for its input table, whatever stands before it;
4. the only one with two axes, if its name says that it is a table (``models.roles.names_table``);
5. ``embedding.weight``, ``embeddings``, ``weight`` and the like.

A file that is one part of a model is read with the other parts: a head in one of them is the output.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tokenspace import rounding
from tokenspace.errors import CheckpointError, ShapeError, TableFormatError, TokenIdError, VocabError
from tokenspace.models.open import Checkpoint, misfit, same_bits
from tokenspace.models.pickled import open_pickle
from tokenspace.models.recognition import shared_names
from tokenspace.models.roles import bearing_family_names, is_head, may_be_head, names_table, other_role
from tokenspace.models.safetensors import DTYPES, TensorInfo, open_file, read
from tokenspace.models.shards import Shards, json_object
from tokenspace.models.siblings import part_names, whole_model
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
        tensors, metadata = _tensors(source)
        found, head = _chosen(source, tensors, metadata, tensor)
        rows, dim = found.shape
        if 0 in (rows, dim):
            raise TableFormatError(f"{source.path}: {found.name!r} is {[rows, dim]}; it holds no numbers")
        names, tokenizer, replaced = for_file(source, rows, vocab, errors, limit)
        read_from: dict[str, Any] = {
            "file": found.path.name,
            "format": _format(source),
            "tensor": found.name,
        }
        if head:
            read_from["head"] = head.name
        if left_out := _left_out(tensors, found) if tensor is not None else []:
            read_from["left_out"] = left_out
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


def _tensors(source: Source) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """The file's tensors, and its metadata."""
    if _format(source) == "torch":
        return open_pickle(source), {}
    file = open_file(source)
    return file.tensors, file.metadata


def _chosen(
    source: Source, tensors: dict[str, TensorInfo], metadata: dict[str, str], name: str | None
) -> tuple[TensorInfo, TensorInfo | None]:
    """The table, and the head if the model has one that isn't the table again."""
    if name is not None:
        matrices = _matrices(tensors)
        if name not in matrices:
            what = f"{name!r} has shape {list(tensors[name].shape)}" if name in tensors else f"no {name!r}"
            raise TableFormatError(
                f"{source.path}: {what}, where a table is (V, D); it has {_listed(matrices)}"
            )
        return matrices[name], None
    model = _other_parts(source)
    shared = shared_names(tensors, metadata)
    found = _by_config(source, model or tensors, metadata, model is not None)
    found = found or _by_family(model or tensors, shared) or _by_shape(source, tensors, model is not None)
    table, head = found
    if head is not None and same_bits(head, table):
        head = None
    if head is not None and head.shape != table.shape:
        raise TableFormatError(f"{source.path}: {misfit(head, table)}")
    return table, head


def _left_out(tensors: dict[str, TensorInfo], table: TensorInfo) -> list[str]:
    """The heads, by their names, of a file whose table the caller named."""
    heads = [each for name, each in _matrices(tensors).items() if may_be_head(name) and each is not table]
    return [f"{each.name} of shape {list(each.shape)}" for each in heads if not same_bits(each, table)]


def _other_parts(source: Source) -> dict[str, TensorInfo] | Shards | None:
    """The tensors of the model that the file is a part of; None if it is no part of one."""
    if not source.packed:
        return whole_model(source.path)
    parts = part_names(source.path.name.removesuffix(".gz"))
    if parts is not None and len(parts) > 1:
        raise TableFormatError(
            f"{source.path} is one of {len(parts):,} files of a model, and packed: unpack them, or name a "
            "table in this one with load(path, tensor=...) or convert --tensor NAME"
        )
    return None


def _matrices(tensors: dict[str, TensorInfo] | Shards) -> dict[str, TensorInfo]:
    return {each: found for each, found in tensors.items() if len(found.shape) == 2}


def _by_config(
    source: Source, tensors: dict[str, TensorInfo] | Shards, metadata: dict[str, str], is_part: bool
) -> tuple[TensorInfo, TensorInfo | None] | None:
    """The input table and head of the model that ``config.json`` in the same folder describes."""
    config = source.path.with_name("config.json")
    if not os.path.isfile(config):
        return None
    try:
        checkpoint = Checkpoint(source.path.parent, json_object(config), tensors, metadata)
    except CheckpointError:
        return None  # it may be of something else: the names may tell
    if is_part and checkpoint.family is None:
        return None  # shapes would have to be looked up in every part
    try:
        return checkpoint.input_embedding, checkpoint.head
    except CheckpointError:
        if is_part:
            raise
        return None


def _by_family(
    tensors: dict[str, TensorInfo] | Shards, shared: Mapping[str, str]
) -> tuple[TensorInfo, TensorInfo | None] | None:
    """The one tensor that a family calls its input table, and the head by those families' name for it."""
    found = bearing_family_names([*tensors, *shared])
    tables = [tensors[stored] for stored in dict.fromkeys(shared.get(name, name) for name in found)]
    tables = [table for table in tables if len(table.shape) == 2]
    if not tables or not all(same_bits(tables[0], other) for other in tables[1:]):
        return None
    names = {table.name for table in tables}
    called = set().union(*found.values())
    heads = {each: tensors[each] for each in tensors if is_head(each) and each not in names}
    heads = {name: head for name, head in heads.items() if name in called} or heads
    if not heads:
        like = {each: tensors[each] for each in tensors if may_be_head(each) and each not in names}
        heads = {name: head for name, head in like.items() if head.shape == tables[0].shape}
    return tables[0], next(iter(heads.values())) if len(heads) == 1 else None


def _by_shape(
    source: Source, tensors: dict[str, TensorInfo], is_part: bool
) -> tuple[TensorInfo, TensorInfo | None]:
    """The only matrix, or one with a usual name, whose head has a head's name."""
    matrices = _matrices(tensors)
    chosen = next(iter(matrices)) if len(matrices) == 1 else None
    chosen = chosen or next((each for each in USUAL if each in matrices), None)
    role = other_role(chosen) if chosen else None
    if chosen is None or is_part or not names_table(chosen):
        which = "which tensor is the table?"
        if role:
            which = f"its only matrix, {chosen!r}, is {role} by its name, not the input table of a model;"
        elif chosen is not None and not names_table(chosen):
            which = f"its only matrix, {chosen!r}, has a name that need not be a table's;"
        raise TableFormatError(
            f"{source.path}: {which} name it with load(path, tensor=...) or convert --tensor NAME, from "
            f"{_listed(matrices)}"
        )
    heads = [each for each in matrices if is_head(each) and each != chosen]
    heads = heads or [
        each for each in matrices if may_be_head(each) and matrices[each].shape == matrices[chosen].shape
    ]
    return matrices[chosen], matrices[heads[0]] if len(heads) == 1 else None


def _numbers(tensor: TensorInfo, limit: int | None) -> tuple[Array, Array | None]:
    """A table's numbers; and which rows are other than in the file, where these had to be made float32."""
    dtype = DTYPES.get(tensor.dtype)
    if dtype == "float64":
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
