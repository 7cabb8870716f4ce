"""Where a run's files lie: its folder and its losses beside the output, its snapshots."""

from __future__ import annotations

import os
from pathlib import Path

from tokenspace.atomic import check_writable
from tokenspace.errors import OutputError
from tokenspace.shown import shown


def folder_beside(output: str | os.PathLike[str]) -> Path:
    """Where the run for ``output`` lies: ``t.training`` for ``t.safetensors``, and for ``t``."""
    return _beside(output, ".training")


def losses_beside(output: str | os.PathLike[str]) -> Path:
    """Return where the losses of the table at ``output`` lie: ``t.loss.jsonl`` for ``t.safetensors``."""
    return _beside(output, ".loss.jsonl")


def snapshot_within(folder: Path, n: int) -> Path:
    """Return where snapshot ``n`` lies in a run's folder."""
    return folder / f"snapshot-{n}.safetensors"


def snapshot_beside(output: str | os.PathLike[str], n: int) -> Path:
    """Return where snapshot ``n`` of a run lies: ``t.snapshot-1.safetensors`` for ``t.safetensors``."""
    path = Path(output)
    return path.with_name(f"{path.stem}.snapshot-{n}{path.suffix}")


def _beside(output: str | os.PathLike[str], suffix: str) -> Path:
    path = followed(output)
    if not path.name:  # ".", "/", ""
        check_writable(output)
        raise OutputError(f"can't write {shown(str(path))}: it is a directory; name a file in it")
    return path.with_name((path.stem if path.suffix == ".safetensors" else path.name) + suffix)


def followed(output: str | os.PathLike[str]) -> Path:
    """Through a link, so that it stays one, and what is moved there moves within one disk."""
    path = Path(output)
    return path.resolve() if path.is_symlink() else path
