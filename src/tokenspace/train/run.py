"""The folder beside an output that training needs to go on after a crash: its settings, corpus and state.

==================== ===================================================================================
``settings.json``    what the run was begun with. A folder without it is no run: it is written when the
                     folder is made, and removed first when the run is over
``corpus/``          the text as ids (``train/corpus.py``)
``state.safetensors``  what is learned so far, and its checksum: replaced whole, and synced to disk, at each
                       checkpoint
``loss.jsonl``         the losses so far, and ``snapshot-1.safetensors`` … the snapshots: moved next to the
                       output with the table, so that an older table keeps its own until then
``table.safetensors``  the table on its way to the output
``lock``             held by the process that trains
==================== ===================================================================================

Whatever moment the process is killed at, the folder holds a run that goes on, or none.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenspace.atomic import replacing, sync_name
from tokenspace.errors import OutputError, TableFormatError, TokenspaceError
from tokenspace.shown import shown
from tokenspace.train import checksum
from tokenspace.train.corpus import open_corpus
from tokenspace.train.divergence import Diverged
from tokenspace.train.places import followed, losses_beside, snapshot_beside
from tokenspace.train.run_lock import locked, made_folder

if TYPE_CHECKING:
    from tokenspace.table import Table

FORMAT = 2
_SETTINGS, _STATE, _TABLE, _LOSSES, _LOCK, _CORPUS = (
    "settings.json",
    "state.safetensors",
    "table.safetensors",
    "loss.jsonl",
    "lock",
    "corpus",
)
_NAMES = frozenset((_SETTINGS, _STATE, _TABLE, _LOSSES, _LOCK, _CORPUS))
_SNAPSHOT = re.compile(r"snapshot-(\d+)\.safetensors")
_SUM = "crc32"  # a key of the state's metadata
_DIFFERENCES = 3  # named in an error
UNSTATED = {"shuffle": False}  # settings as they are where a run or a table does not state them


class Run:
    """One run's folder, locked while this object lives: ``with Run.begin(…) as run``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as name:
    ...     with Run.begin(Path(name) / "t.training", {"dim": 4}, resume=False) as run:
    ...         run.save({"weight": np.ones((2, 4), np.float32)}, {"pieces": 7})
    ...     with Run.begin(Path(name) / "t.training", {"dim": 4}, resume=True) as run:
    ...         arrays, about = run.load()
    ...         run.remove()
    >>> arrays["weight"].shape, about
    ((2, 4), {'pieces': 7})
    """

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock: int | None = lock

    @classmethod
    def begin(cls, folder: Path, settings: dict[str, Any], resume: bool) -> Run:
        """Make the folder and lock it; with ``resume``, go on with the run that is there, if one is.

        ``settings`` are plain JSON values: what the result depends on. ``OutputError`` if the folder holds an
        unfinished run and ``resume`` is False, a run of other settings, or files that no run put there; if
        another process is at it; or if it can't be written.
        """
        settings = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        made = made_folder(folder)
        if not made:
            _check_is_ours(folder)  # before there is a lock in it
        run = cls(folder, locked(folder, _LOCK))
        try:
            before = _settings_in(folder)
            if before is None:
                run._clear()
                with replacing(folder / _SETTINGS) as fresh:
                    fresh.write_text(json.dumps({"format": FORMAT, "settings": settings}), "utf-8")
            elif not resume:
                raise OutputError(
                    f"{shown(str(folder))} holds an unfinished run; go on with it (--resume, resume=True), "
                    "or delete that folder to begin anew"
                )
            elif before != settings:
                raise OutputError(
                    f"{shown(str(folder))} holds a run with other settings "
                    f"({_differences(before, settings)}); give the same ones to resume it, "
                    "or delete that folder to begin anew"
                )
            else:
                run._sweep()
        except BaseException:
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            run.close()
            raise
        return run

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether ``folder`` holds a run that is not over."""
        return (folder / _SETTINGS).exists()

    @classmethod
    def clear(cls, folder: Path) -> None:
        """Remove what a run that was killed while it ended may have left; nothing of anyone else's."""
        if folder.is_dir() and not cls.lies_in(folder) and not _strange(folder):
            with cls(folder, locked(folder, _LOCK)) as run:
                run.remove()

    @property
    def has_corpus(self) -> bool:
        """Whether the text was made a corpus, to the end."""
        return (self.folder / _CORPUS).exists() and open_corpus(self.corpus) is not None

    @property
    def corpus(self) -> Path:
        """Where the corpus's files lie; made if it isn't there."""
        path = self.folder / _CORPUS
        made_folder(path)
        return path

    @property
    def losses(self) -> Path:
        """Where the losses are written while the run lasts."""
        return self.folder / _LOSSES

    @property
    def has_state(self) -> bool:
        """Whether anything was saved to go on from."""
        return (self.folder / _STATE).exists()

    def save(self, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
        """Replace the state: after a crash it is this one or the one before. ``OutputError`` if it can't be.

        ``about`` holds plain JSON values.
        """
        from safetensors.numpy import save_file

        path = self.folder / _STATE
        text = json.dumps(about)
        with disk_told(path), replacing(path) as fresh:
            save_file(arrays, str(fresh), {"about": text, _SUM: str(checksum.of_state(arrays, text))})

    def load(self) -> tuple[dict[str, np.ndarray], dict[str, Any]] | None:
        """The arrays (memory-mapped) and the remarks that were saved last; None if nothing was yet.

        ``TableFormatError`` if they are damaged.
        """
        from tokenspace.models.safetensors import open_file

        if not self.has_state:
            return None
        try:
            file = open_file(self.folder / _STATE)
            arrays, text = {name: file.read(name) for name in file.tensors}, file.metadata["about"]
            if file.metadata[_SUM] != str(checksum.of_state(arrays, text)):
                raise ValueError("bytes have changed")
            return arrays, json.loads(text)
        except (TokenspaceError, ValueError, KeyError) as error:
            raise self.damaged(str(error) if isinstance(error, TokenspaceError) else "") from None

    def damaged(self, how: str = "") -> TableFormatError:
        """The error for a state that is none, or none of this run."""
        path = shown(str(self.folder / _STATE))
        return TableFormatError(
            f"{path} is not what was written there, so the run can't go on from it"
            f"{f' ({how})' if how else ''}; delete {shown(str(self.folder))} to begin anew"
        )

    @staticmethod
    def tokens_read(folder: Path) -> int:
        """How many tokens the run in ``folder`` had read when its state was saved; 0 if none was."""
        from tokenspace.models.safetensors import open_file

        try:
            return int(json.loads(open_file(folder / _STATE).metadata["about"])["tokens"])
        except (TokenspaceError, OSError, ValueError, KeyError, TypeError):
            return 0  # whoever goes on from it tells what is wrong

    def publish(self, table: Table, output: str | os.PathLike[str]) -> None:
        """Save ``table`` at ``output``: written here, so that a crash leaves nothing there, then moved.

        The losses and snapshots of the run follow it.
        """
        from tokenspace.formats import native

        fresh, target = self.folder / _TABLE, followed(output)
        with disk_told(target):
            try:
                native.save(table, fresh)
            except OutputError as error:  # it names the place that the table has for a while
                raise OutputError(str(error).replace(str(fresh.resolve()), shown(str(target)))) from None
        _move(fresh, target)
        losses = losses_beside(output)
        if self.losses.exists():  # a copy: a run that was interrupted goes on with its own
            with disk_told(losses), replacing(losses) as copy:
                shutil.copyfile(self.losses, copy)
        for name in self._listed():
            if found := _SNAPSHOT.fullmatch(name):
                _move(self.folder / name, snapshot_beside(output, int(found[1])))

    def remove(self) -> None:
        """Delete the folder, once the output is safely there. ``OutputError`` if it can't be."""
        try:
            (self.folder / _SETTINGS).unlink(missing_ok=True)  # from here on it is no run
            if self.folder.is_symlink():
                for name in os.listdir(self.folder):
                    _delete(self.folder / name)
            else:
                shutil.rmtree(self.folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise OutputError(f"can't remove {shown(str(self.folder))}: {error.strerror}") from None

    def close(self) -> None:
        """Let go of the folder, for other processes to take."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _clear(self) -> None:
        """Remove what a run that was killed while it began or ended left here; nothing of anyone else's."""
        _check_is_ours(self.folder)
        self._delete_all(lambda name: name != _LOCK)

    def _sweep(self) -> None:
        """Remove half-written files."""
        self._delete_all(_half)

    def _delete_all(self, chosen: Callable[[str], bool]) -> None:
        for name in filter(chosen, self._listed()):
            with disk_told(self.folder / name, "remove"):
                _delete(self.folder / name)

    def _listed(self) -> list[str]:
        with disk_told(self.folder, "read the folder"):
            return os.listdir(self.folder)


@contextlib.contextmanager
def kept_if_of_use(run: Run) -> Iterator[None]:
    """After an error within, the run's folder stays only if there is something in it to go on from."""
    try:
        yield
    except OutputError as error:
        if run.has_state or run.has_corpus:
            raise OutputError(f"{error}; mend that, then go on with --resume (resume=True)") from None
        run.remove()
        raise
    except Diverged as error:
        if run.has_state:
            raise Diverged(
                f"{error}; the last state before that is kept in {shown(str(run.folder))}; "
                "delete that folder to begin anew"
            ) from None
        run.remove()
        raise
    except KeyboardInterrupt:
        if not (run.has_state or run.has_corpus):
            run.remove()
        raise
    except BaseException:
        if not run.has_state:
            run.remove()
        raise


@contextlib.contextmanager
def disk_told(path: Path, task: str = "write") -> Iterator[None]:
    """Raise an error of the system about ``path`` as an ``OutputError``: can't ``task`` it."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:  # no OSError, whatever happened
        raise OutputError(f"can't {task} {shown(str(path))}: {error}") from None
    except TokenspaceError:
        raise
    except OSError as error:
        raise OutputError(f"can't {task} {shown(str(path))}: {error.strerror or error}") from None


def _settings_in(folder: Path) -> dict[str, Any] | None:
    """What the run in ``folder`` was begun with; None if there is none. ``OutputError`` if it isn't ours."""
    path = folder / _SETTINGS
    try:
        about = json.loads(path.read_text("utf-8"))
        if about["format"] == FORMAT:
            return about["settings"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise OutputError(
        f"{shown(str(path))} is not what this version of tokenspace writes there; "
        "rename or delete that folder, or choose another output"
    )


def _check_is_ours(folder: Path) -> None:
    """``OutputError`` if ``folder`` holds no run, and something that no run put there."""
    if _settings_in(folder) is None and (strange := _strange(folder)):
        raise OutputError(
            f"{shown(str(folder))} holds what no run put there ({shown(min(strange))}); "
            "rename that folder, or choose another output"
        )


def _differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The first settings that differ, as they were and as they are."""
    keys = [key for key in before | now if before.get(key) != now.get(key)]
    then, now = UNSTATED | before, UNSTATED | now
    named = [f"{key} {_brief(then.get(key))} then, {_brief(now.get(key))} now" for key in keys]
    more = f"; and {len(named) - _DIFFERENCES} more" if len(named) > _DIFFERENCES else ""
    return "; ".join(named[:_DIFFERENCES]) + more


def _brief(value: Any) -> str:
    text = "default" if value is None else json.dumps(value, ensure_ascii=False)
    return shown(text if len(text) <= 60 else f"{text[:60]}…")


def _move(fresh: Path, target: Path) -> None:
    """Have ``fresh`` take the place of ``target``, whose permissions stay."""
    with disk_told(target):
        if target.exists():
            shutil.copymode(target, fresh)
        try:
            fresh.replace(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with replacing(target) as copy:  # the folder is a link to another disk
                shutil.copyfile(fresh, copy)
            fresh.unlink()
        else:
            sync_name(target)


def _strange(folder: Path) -> list[str]:
    """The names in ``folder`` that no run put there."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:  # another run has removed it since
        return []
    except OSError as error:
        raise OutputError(f"can't read the folder {shown(str(folder))}: {error.strerror}") from None
    return [
        name for name in names if name not in _NAMES and not _half(name) and not _SNAPSHOT.fullmatch(name)
    ]


def _half(name: str) -> bool:
    """Whether ``atomic`` or safetensors names a file so until it is whole."""
    return name.startswith(".tmp") or (name.startswith(".") and name.endswith(".partial"))


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
