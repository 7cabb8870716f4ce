"""Reading and writing tables: ``load`` takes whatever holds one, ``save`` writes tokenspace's own file."""

from __future__ import annotations

import os
from pathlib import Path

from tokenspace.errors import TableFormatError
from tokenspace.formats import native
from tokenspace.models.open import load_table
from tokenspace.table import Table

__all__ = ["BUILT_IN", "load", "save"]

_DATA = Path(__file__).parent.parent / "data"
BUILT_IN = {"wordnet": _DATA / "wordnet.safetensors"}

save = native.save


def load(source: str | os.PathLike[str] = "wordnet") -> Table:
    """Open a table: a built-in name, a native file, or a checkpoint's folder.

    A file in the working directory that has a built-in table's name is reached as ``./wordnet``.
    ``TableFormatError`` or ``CheckpointError`` say what is wrong with anything else.

    >>> load("wordnet").dim
    100
    """
    if source in BUILT_IN:
        return native.load(BUILT_IN[str(source)])
    path = Path(source)
    if path.is_dir():
        return load_table(path)
    if not path.exists():
        raise TableFormatError(
            f"there is no table {str(source)!r}: neither a file or folder nor a built-in one "
            f"({', '.join(BUILT_IN)})"
        )
    return native.load(path)
