"""An output that is there already when a run is to be resumed: is it what the run would make?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tokenspace import formats, text
from tokenspace.errors import OutputError
from tokenspace.shown import shown
from tokenspace.table import Table
from tokenspace.train.run import UNSTATED
from tokenspace.train.sources import check_unchanged


def finished(
    output: str | os.PathLike[str],
    objective: str,
    settings: dict[str, Any],
    files: text.Files,
    beginning: Mapping[str, str | None] | None = None,
) -> Table:
    """The table at ``output``, made of ``files`` with these ``settings``; those that are None were free.

    ``beginning`` has the SHA-256 of the given "tokenizer" and of the "init" to begin with, None for none.
    ``OutputError`` if it was made otherwise, or only in part; ``CorpusError`` if the text has changed.
    """
    name = shown(os.fspath(output))
    table = formats.load(output)
    made = table.provenance
    before = made.get("settings") if made.get("objective") == objective else None
    if before is None:
        raise _other(name, "is no table of such a run")
    if "snapshot_at" in made:
        raise _other(name, f"is a snapshot, made when {made['snapshot_at']:.0%} of a run was done")
    for key, value in (UNSTATED | settings).items():
        was = before.get(key, UNSTATED.get(key))
        if value is not None and was != value:
            raise _other(name, f"was made with other settings: {key} {was!r}, not {value!r}")
    if beginning is not None:
        _check_beginning(name, made, beginning)
    if "interrupted_at" in made:
        raise OutputError(
            f"{name} was interrupted when {made['interrupted_at']:.0%} was done, and the folder to resume it "
            "from is gone; train without --resume (resume=True) to begin anew"
        )
    check_unchanged(files, made["corpus"])
    return table


def _check_beginning(name: str, made: dict[str, Any], beginning: Mapping[str, str | None]) -> None:
    before = {
        "tokenizer": made.get("tokenizer", {}).get("sha256"),
        "init": made.get("init", {}).get("table_sha256"),
    }
    if beginning["tokenizer"] is None:  # learned with the settings that were compared
        before["tokenizer"] = None
    for key, value in beginning.items():
        if before[key] != value:
            was, now = ("none" if one is None else one[:12] for one in (before[key], value))
            raise _other(name, f"was made with another {key}: {was}, not {now}")


def _other(name: str, what: str) -> OutputError:
    return OutputError(
        f"there is no run to resume, and {name} {what}; choose another output, or train without --resume "
        "(resume=True) to replace it"
    )
