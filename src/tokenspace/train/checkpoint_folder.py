"""The folder that a model is to be saved in: can it be, and would it then hold that model alone?

``transformers`` takes what it finds: beside our files it would read another model's special tokens, or its
weights in parts. So a folder that holds any of ``ALSO_READ`` is refused, before anything is trained.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tokenspace.atomic import check_writable
from tokenspace.errors import OutputError
from tokenspace.shown import shown

WEIGHTS = "model.safetensors"
FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS)
ALSO_READ = (
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "chat_template.*",
    "adapter_config.json",
    "pytorch_model*.bin",
    "*.index.json",
    "tf_model.h5",
    "flax_model.msgpack",
)


def checked(folder: Any) -> Path:
    """``folder`` as a path, if a model can be saved there; ``OutputError`` now if it can't."""
    try:
        name = os.fspath(folder)
    except TypeError:
        raise OutputError(f"a model is saved in a folder, and {folder!r} names none; give its name") from None
    if not name:
        raise OutputError("no folder was named for the model; give its name")
    place = Path(os.fsdecode(name))
    try:
        if place.is_dir():
            _check_free(place)
        elif os.path.lexists(place):
            raise OutputError(f"can't write {shown(str(place))}: a model takes a folder, and that is a file")
        else:
            _check_can_be_made(place)
    except OutputError:
        raise
    except (OSError, ValueError) as error:  # a name that no file can have is a ValueError
        reason = error.strerror if isinstance(error, OSError) else None
        raise OutputError(f"can't make the folder {shown(str(place))}: {reason or error}") from None
    return place


def check_apart(folder: Path, written: Iterable[Path], texts: Iterable[Path]) -> None:
    """``OutputError`` if the model would get in the way of what else is ``written``, or of the ``texts``."""
    place = folder.resolve()
    for path in written:
        other = path.resolve()
        if place == other or place in other.parents or other in place.parents:
            raise OutputError(
                f"can't save the model in {shown(str(folder))}: {shown(str(path))} is written there too; "
                "choose another folder for one of them"
            )
    for path in texts:
        if place in path.resolve().parents:
            raise OutputError(
                f"can't save the model in {shown(str(folder))}: a text to learn from lies there "
                f"({shown(path.name)}); choose another folder"
            )


def _check_free(place: Path) -> None:
    for name in sorted(os.listdir(place)):
        if any(fnmatch(name, pattern) for pattern in ALSO_READ):
            raise OutputError(
                f"can't save the model in {shown(str(place))}: {shown(name)} lies there, which transformers "
                "would read beside it; choose another folder, or remove that file"
            )
    for name in FILES:
        check_writable(place / name)


def _check_can_be_made(place: Path) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        place.lstat()  # fails otherwise for a name that no file can have
    nearest = next(parent for parent in place.absolute().parents if os.path.lexists(parent))
    if not nearest.is_dir():
        raise OutputError(f"can't make the folder {shown(str(place))}: {shown(str(nearest))} is a file")
    tempfile.TemporaryFile(dir=nearest).close()  # asking for permissions would not tell a full disk
