"""The other files of a model of which one file is given: ``model-00002-of-00003.safetensors``.

An index in the same folder says which tensor is in which file; without one, the file's name says how many
there are, and their headers say what they hold.
"""

from __future__ import annotations

import re
from pathlib import Path

from tokenspace.errors import CheckpointError
from tokenspace.models.safetensors import TensorInfo
from tokenspace.models.shards import Shards, json_object, places, tensors_of

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+?(?:\.gz)?)", re.DOTALL)
INDEXES = "*.index.json"


def part_names(name: str) -> list[str] | None:
    """The names of all files of the model that the file ``name`` is a part of; None if it is no part.

    >>> part_names("model-00002-of-00002.safetensors")
    ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
    >>> part_names("model.safetensors")
    """
    found = _PART.fullmatch(name)
    if found is None:
        return None
    stem, part, count, suffix = found[1], int(found[2]), int(found[3]), found[4]
    if not 1 <= part <= count:
        return None
    return [f"{stem}-{i:05d}-of-{count:05d}{suffix}" for i in range(1, count + 1)]


def whole_model(path: Path) -> dict[str, TensorInfo] | Shards | None:
    """The tensors of the model that the file at ``path`` is a part of; None if it is no part of one.

    A file is opened when a tensor of it is asked for, if an index is there. ``CheckpointError`` names a file
    that is needed and missing.
    """
    for index in sorted(path.parent.glob(INDEXES)):
        try:
            where = places(index, json_object(index))
        except CheckpointError:
            continue  # it may be of something else
        if path.name in where.values() and len(set(where.values())) > 1:
            return Shards(index)
    names = part_names(path.name)
    if names is None or len(names) == 1:
        return None
    missing = [name for name in names if not path.with_name(name).is_file()]
    if missing:
        more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
        raise CheckpointError(
            f"{path} is one of {len(names):,} files of a model, and {missing[0]}{more} is not beside it: the "
            "table or its output may be there; get it, or name a table in this file with load(path, "
            "tensor=...) or convert --tensor NAME"
        )
    return {name: found for each in names for name, found in tensors_of(path.with_name(each)).items()}
