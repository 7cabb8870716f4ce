"""An output that is there already when a run is to be resumed: is it what the run would make?"""

from __future__ import annotations

import os
from typing import Any

from tokenspace import formats, text
from tokenspace.errors import OutputError
from tokenspace.shown import shown
from tokenspace.table import Table
from tokenspace.train.sources import check_unchanged


def finished(
    output: str | os.PathLike[str], objective: str, settings: dict[str, Any], files: text.Files
) -> Table:
    """The table at ``output``, made of ``files`` with these ``settings``; those that are None were free.

    ``OutputError`` if it was made otherwise, or only in part; ``CorpusError`` if the text has changed.
    """
    name = shown(os.fspath(output))
    table = formats.load(output)
    made = table.provenance
    before = made.get("settings") if made.get("objective") == objective else None
    if before is None:
        raise _other(name, "is no table of such a run")
    for key, value in settings.items():
        if value is not None and before.get(key) != value:
            raise _other(name, f"was made with other settings: {key} {before.get(key)!r}, not {value!r}")
    if "interrupted_at" in made:
        raise OutputError(
            f"{name} was interrupted when {made['interrupted_at']:.0%} was done, and the folder to resume it "
            "from is gone; train without --resume (resume=True) to begin anew"
        )
    check_unchanged(files, made["corpus"])
    return table


def _other(name: str, what: str) -> OutputError:
    return OutputError(
        f"there is no run to resume, and {name} {what}; choose another output, or train without --resume "
        "(resume=True) to replace it"
    )
