"""A checkpoint whose tensors lie in several files: an index says which; each is opened when it is wanted.

``model.safetensors.index.json`` (or ``pytorch_model.bin.index.json``)::

    {"metadata": {...}, "weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors", ...}}

So a folder that holds only the files of the embedding layer is enough for the embedding layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenspace import bounded_json
from tokenspace.errors import CheckpointError
from tokenspace.models.pickled import open_pickle
from tokenspace.models.safetensors import TensorInfo, listed, open_file

if TYPE_CHECKING:
    _Tensors = Mapping[str, TensorInfo]
else:
    _Tensors = Mapping  # a checker of types at calls would look into it, and open a file


class Shards(_Tensors):
    """The tensors that an index names. Asking for one opens its file, once; asking for all opens them all.

    ``CheckpointError`` if the index is none, or names what is no plain file of its folder; and, when a tensor
    is asked for, if its file is not there or does not hold it.
    """

    def __init__(self, index: Path) -> None:
        self._index = index
        self._places = places(index, json_object(index))
        self._opened: dict[str, Mapping[str, TensorInfo]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> TensorInfo:
        shard = self._places[name]
        if shard not in self._opened:
            path = self._index.parent / shard
            if not os.path.isfile(path):
                raise CheckpointError(
                    f"{path.parent} has no {shard}, which {self._index.name} names; is the download complete?"
                )
            self._opened[shard] = tensors_of(path)
        if name not in self._opened[shard]:
            raise CheckpointError(
                f"{self._index.name} says that {shard} holds {name!r}; it holds {listed(self._opened[shard])}"
            )
        return self._opened[shard][name]

    def there(self) -> tuple[dict[str, TensorInfo], list[str]]:
        """The tensors of those files that the folder holds, and the names of the files that it lacks."""
        files = sorted(set(self._places.values()))
        absent = [file for file in files if not os.path.isfile(self._index.parent / file)]
        return {name: self[name] for name, file in self._places.items() if file not in absent}, absent


def places(index: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """The file of each tensor, as the ``content`` of an index says; ``index`` names it in errors."""
    found = content.get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(shard, str) for shard in found.values()):
        raise CheckpointError(f"{index} has no weight_map of tensor names to file names")
    for shard in sorted(set(found.values())):
        if shard in ("", ".", "..") or any(sign in shard for sign in "/\\\0:"):
            raise CheckpointError(f"{index} names {shard!r}; a shard is a plain file in the same folder")
    return found


def tensors_of(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one file, by name."""
    return open_pickle(path) if path.suffix == ".bin" else open_file(path).tensors


def json_object(path: Path) -> dict[str, Any]:
    """A file's JSON object; ``CheckpointError`` if it holds none."""
    try:
        content = bounded_json.parse(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"can't read {path}: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON that can be read: {error}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is a JSON {type(content).__name__}; an object is needed")
    return content
