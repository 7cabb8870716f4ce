"""A checkpoint's folder, opened by its files' headers: where its embedding table is, and the table itself.

The folder holds ``config.json``; ``model.safetensors``, or ``model.safetensors.index.json`` and the files
that it names; and ``tokenizer.json`` (or the files of ``tokenizer_files``). No model code runs, and no number
is read before it is used. Where there are no safetensors files, ``pytorch_model.bin`` or its shards do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokenspace.errors import CheckpointError
from tokenspace.models.families import FAMILIES
from tokenspace.models.pickled import open_pickle
from tokenspace.models.recognition import is_tied, recognised, setting, shared_names, stored_table
from tokenspace.models.roles import is_head, may_be_head, names_table, other_role
from tokenspace.models.safetensors import DTYPES, TensorInfo, bytes_of, listed, open_file, read
from tokenspace.models.shards import Shards, json_object
from tokenspace.models.vocabulary import check_regular, fitted, vocabulary
from tokenspace.shapes import Array
from tokenspace.table import DTYPES as TABLE_DTYPES
from tokenspace.table import Table

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
_NAMED = "load(path, tensor=...) or convert --tensor NAME"


class Checkpoint:
    """An opened folder: ``config`` as its file says, ``tensors`` by name over all files, ``family``.

    Of several files, one is opened when a tensor of it is asked for: see ``Shards``.

    ``family`` is None where neither ``config.json``'s model type nor the tensors' names are known;
    ``prefix`` is what the files put before the family's names. ``shared`` gives the stored name of a tensor
    that shares its numbers: a file of safetensors' ``save_model`` keeps one of a tied pair, and says so in
    its metadata.
    """

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        tensors: dict[str, TensorInfo] | Shards,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.config = config
        self.tensors = tensors
        self.shared = shared_names(tensors, metadata or {})
        self.family, self.prefix = recognised(config, tensors, self.shared)

    def __repr__(self) -> str:
        family = self.family.name if self.family else "unknown family"
        return f"Checkpoint({str(self.folder)!r}, {family}, {len(self.tensors)} tensors)"

    def read(self, name: str) -> Array:
        """The tensor ``name`` as a read-only memory map in its own dtype."""
        if name not in self.tensors:
            raise CheckpointError(f"{self.folder} has no tensor {name!r}; it has {listed(self.tensors)}")
        return read(self.tensors[name])

    def setting(self, key: str, default: Any = None) -> Any:
        """What ``config.json`` says of ``key``, or its ``text_config`` does (models of text and images)."""
        return setting(self.config, key, default)

    def find(self, name: str | None) -> TensorInfo | None:
        """The tensor that the family calls ``name``, with the prefix or without; None if there is none."""
        if name is None:
            return None
        for form in (self.prefix + name, name):
            if (stored := self.shared.get(form, form)) in self.tensors:
                return self.tensors[stored]
        return None

    @cached_property
    def input_embedding(self) -> TensorInfo:
        """The table that token ids select from: by the family's names for it, else the one tensor that has
        ``vocab_size`` rows. ``CheckpointError`` lists the candidates if several have, and names a lone
        candidate that is something else by its name, such as an untied head.
        """
        stored = stored_table(self.config, self.family, self.prefix, self.tensors, self.shared)
        found = self._by_shape() if stored is None else self.tensors[stored]
        if len(found.shape) != 2:
            raise CheckpointError(
                f"{self.folder}: {found.name!r} has shape {list(found.shape)}; an input table is (V, D)"
            )
        return found

    @cached_property
    def head(self) -> TensorInfo | None:
        """The output head's own weight; None if there is no head here, or it equals the input table."""
        own = self.stored_head
        return None if own is None or same_bits(own, self.input_embedding) else own

    @cached_property
    def stored_head(self) -> TensorInfo | None:
        """The tensor that the files hold for the head, equal to the table or not; None where the files hold
        none beside the table. Of an unknown family, the one tensor with a head's name in a known one, else
        the one of the table's shape with a head's name in some program.
        """
        if self.family:
            own = self.find(self.family.head)
        else:
            named = [name for name in self.tensors if is_head(name)] or self._like_table(may_be_head)
            own = self.tensors[named[0]] if len(named) == 1 else None
        return None if own is None or own.name == self._table_name else own

    @property
    def head_bias_name(self) -> str | None:
        """The family's name for the bias that its head adds: where ``config.json`` ties nothing, BERT and
        its relatives read another than the one of their tied head (huggingface/transformers 5.24,
        ``_tied_weights_keys``). Where both are stored, tied and not equal, the untied head's is the one read.
        """
        if self.family is None:
            return None
        tied, untied = self.family.head_bias, self.family.untied_head_bias
        if untied is None or not is_tied(self.config, self.family):
            return untied or tied
        own, other = self.find(untied), self.find(tied)
        return tied if own is None or (other is not None and same_bits(own, other)) else untied

    @property
    def head_bias(self) -> TensorInfo | None:
        """The stored bias that the head adds; None if the files hold none."""
        return self.find(self.head_bias_name)

    def _like_table(self, is_named: Callable[[str], bool]) -> list[str]:
        """The names of tensors of the table's shape, among those that ``is_named``; none without a table."""
        table = self._table_name
        if table is None:
            return []
        named = [name for name in self.tensors if name != table and is_named(name)]
        return [name for name in named if self.tensors[name].shape == self.tensors[table].shape]

    @property
    def _table_name(self) -> str | None:
        try:
            return self.input_embedding.name
        except CheckpointError:
            return None

    @property
    def tied(self) -> bool | None:
        """Whether the head is the input table: told from the tensors where the head is stored, else from
        ``config.json``, else from what the family does. None if the family is unknown and the file silent.
        """
        if self.family and self.find(self.family.head):
            return self.head is None
        if self.family is None and self.stored_head is not None and self._table_name is not None:
            return self.head is None
        flag = self.setting("tie_word_embeddings")
        return flag if isinstance(flag, bool) else self.family.tied if self.family else None

    def _by_shape(self) -> TensorInfo:
        rows = self.setting("vocab_size")
        kind = self.why_unknown
        if type(rows) is not int:
            raise CheckpointError(
                f"{self.folder}: {kind}, and config.json's vocab_size is {rows!r}, no whole number; set it, "
                f"or name the input table with {_NAMED}, from {listed(self.tensors)}"
            )
        found = [
            tensor for tensor in self.tensors.values() if len(tensor.shape) == 2 and tensor.shape[0] == rows
        ]
        possible = [tensor for tensor in found if other_role(tensor.name) is None]
        if len(possible) == 1 and names_table(possible[0].name):
            return possible[0]
        if len(found) == 1 and is_head(found[0].name) and self.setting("tie_word_embeddings") is True:
            return found[0]
        if len(found) == 1:
            role = other_role(found[0].name)
            by_name = f"is {role} by its name" if role else "has a name that need not be a table's"
            raise CheckpointError(
                f"{self.folder}: {kind}, and the only tensor with vocab_size = {rows:,} rows, "
                f"{found[0].name!r}, {by_name}; is a file with the input table missing? Where it is the "
                f"table all the same: {_NAMED}"
            )
        if not found:
            raise CheckpointError(
                f"{self.folder}: {kind}, and no tensor has vocab_size = {rows} rows; "
                f"name the input table with {_NAMED}, from {listed(self.tensors)}"
            )
        heads = [tensor.name for tensor in found if may_be_head(tensor.name)]
        others = [tensor.name for tensor in found if tensor.name not in heads]
        apart = f" (heads by their names: {listed(heads)})" if heads and others else ""
        raise CheckpointError(
            f"{self.folder}: {kind}, and {len(found)} tensors have vocab_size = {rows:,} rows; name the "
            f"input table with {_NAMED}: {listed(others or heads)}{apart}"
        )

    @property
    def why_unknown(self) -> str:
        """The reason why no family is recognised, as the first words of an error."""
        kind = self.config.get("model_type")
        known = [family.token for family in FAMILIES if kind in family.model_types]
        if known:
            return f"no tensor has the name of {kind}'s input table, {known[0]!r}"
        return f"model type {kind!r} with these tensors is not a known family"


def open_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint's folder; costs what its headers cost (about a millisecond for 100 tensors).

    ``CheckpointError`` if the folder lacks a file; ``TableFormatError`` if a safetensors file is damaged.
    ``pytorch_model.bin`` is read whole, by torch: ``MissingExtra`` without it.
    """
    folder = Path(folder)
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist"
        raise CheckpointError(f"{folder} {what}; a checkpoint is a folder with config.json and {WEIGHTS}")
    if not os.path.isfile(folder / "config.json"):
        check_regular(folder / "config.json")
        raise CheckpointError(
            f"{folder} has no config.json; a checkpoint is a folder with that and {WEIGHTS}"
        )
    config = json_object(folder / "config.json")
    if os.path.isfile(folder / WEIGHTS):
        file = open_file(folder / WEIGHTS)
        return Checkpoint(folder, config, file.tensors, file.metadata)
    if os.path.isfile(folder / INDEX):
        return Checkpoint(folder, config, Shards(folder / INDEX))
    if os.path.isfile(folder / PICKLE):
        return Checkpoint(folder, config, open_pickle(folder / PICKLE))
    if os.path.isfile(folder / PICKLE_INDEX):
        return Checkpoint(folder, config, Shards(folder / PICKLE_INDEX))
    for name in (WEIGHTS, INDEX, PICKLE, PICKLE_INDEX):
        check_regular(folder / name)
    raise CheckpointError(
        f"{folder} has neither {WEIGHTS} nor {INDEX}, nor {PICKLE}; is the download complete?"
    )


def load_table(folder: str | os.PathLike[str], tensor: str | None = None, limit: int | None = None) -> Table:
    """A checkpoint's input table, memory-mapped, with the folder's tokenizer; an untied head is ``output``.

    ``tensor`` names the table where the family is unknown and the shapes don't tell: it is read without a
    head, but for a family's own table, whose head of another shape is then left out, and ``provenance`` says
    so. Without ``tensor``, ``CheckpointError`` refuses such a pair. Rows past the tokenizer's last id get
    the tokens ``[unused-row-N]``; an id without a row is a ``CheckpointError``. ``limit``: only so many
    rows, and no tokenizer, whose ids would mean rows that are not there.
    """
    checkpoint, own = open_checkpoint(folder), True
    if tensor is not None:
        checkpoint.read(tensor)  # names what there is if it is not there
        own = checkpoint.family is not None and checkpoint.input_embedding.name == tensor
        checkpoint.input_embedding = checkpoint.tensors[tensor]
    source = checkpoint.input_embedding
    head = checkpoint.head if own or checkpoint.family is None else None
    left_out = None
    if head is not None and not own:
        left_out, head = f"{head.name} of shape {list(head.shape)}", None
    if head is not None and head.shape != source.shape:
        if tensor is None:
            raise CheckpointError(f"{checkpoint.folder}: {misfit(head, source)}")
        left_out, head = f"{head.name} of shape {list(head.shape)}", None
    vocab, tokenizer = vocabulary(checkpoint.folder, source.shape[0])
    whole = limit is None or limit >= source.shape[0]
    return Table(
        _numbers(source)[:limit],
        fitted(vocab, source.shape[0], checkpoint.folder, limit, tokenizer),
        tokenizer if whole else None,
        None if head is None else _numbers(head)[:limit],
        provenance={
            "made_by": "a model's checkpoint",
            "folder": checkpoint.folder.resolve().name,
            "family": checkpoint.family.name if checkpoint.family else None,
            "tensor": source.name,
            "head": head.name if head else None,
            "tied": checkpoint.tied if own else None,
            **({} if left_out is None else {"left_out": [left_out]}),
            **({} if whole else {"rows_taken": limit}),
        },
    )


def misfit(head: TensorInfo, table: TensorInfo) -> str:
    """The error of a head whose shape is not its table's."""
    return (
        f"the head {head.name!r} is {list(head.shape)}, the input table {table.name!r} {list(table.shape)}; "
        f"a table's output needs the same shape: to read the table without it, name it with {_NAMED}"
    )


def _numbers(tensor: TensorInfo) -> Array:
    if DTYPES.get(tensor.dtype) not in TABLE_DTYPES:
        raise CheckpointError(
            f"{tensor.path}: tensor {tensor.name!r} is {tensor.dtype}; a table must be F32, F16 or BF16"
        )
    return read(tensor)


def same_bits(a: TensorInfo, b: TensorInfo) -> bool:
    """Whether two tensors hold the same bits; stops at the first block of about 64 MB that differs."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if a.start == a.end:
        return True
    left, right = (_by_rows(tensor) for tensor in (a, b))
    step = max(1, 2**26 * len(left) // (a.end - a.start))
    return all(
        np.array_equal(_bytes(left[i : i + step]), _bytes(right[i : i + step]))
        for i in range(0, len(left), step)
    )


def _by_rows(tensor: TensorInfo) -> Array:
    if tensor.array is not None:
        return np.atleast_1d(tensor.array)
    return bytes_of(tensor)


def _bytes(rows: Array) -> Array:
    return np.ascontiguousarray(rows).view(np.uint8)
