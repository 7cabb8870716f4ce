"""Tables on the Hugging Face Hub: ``hf:org/name`` becomes a folder or a file on this machine.

=================================  ===========================================================================
name                               the table
=================================  ===========================================================================
``hf:org/name``                    the repository's, found by ``hub_files``
``hf:org/name@revision``           the same at a branch, tag or commit
``hf:org/name/file.gguf``          one of its files (``hf:org/name@revision/folder/file.vec``)
=================================  ===========================================================================

The ``huggingface_hub`` library fetches: into its own cache, with its own settings (``HF_HOME``,
``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HUB_OFFLINE``), and what is there is not fetched again. All files are of
one commit. Without a connection the cache alone serves.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tokenspace.errors import CheckpointError, TableFormatError
from tokenspace.formats import hub_files
from tokenspace.models.safetensors import listed

SCHEME = "hf:"
_SEGMENT = r"[A-Za-z0-9](?:[\w-]|\.(?!\.)){0,95}"
_NAME = re.compile(
    rf"hf:(?P<repository>{_SEGMENT}(?:/{_SEGMENT})?)"
    r"(?:@(?P<revision>refs/(?:pr|convert)/[\w.-]+|(?!\.)[\w.+-]+))?(?:/(?P<file>.+))?",
    re.ASCII,
)
_COMMIT = re.compile("[0-9a-f]{40}")
_PATIENCE = 10.0  # seconds that the hub may take to answer


class Name(NamedTuple):
    """The parts of ``hf:repository@revision/file``."""

    repository: str
    revision: str | None
    file: str | None


def is_name(source: object) -> bool:
    """Whether ``source`` names a table on the hub.

    >>> is_name("hf:org/name"), is_name("./hf:org/name"), is_name(3)
    (True, False, False)
    """
    return isinstance(source, str) and source.startswith(SCHEME)


def parsed(name: str) -> Name:
    """The parts of a name; ``TableFormatError`` if it can be none.

    >>> parsed("hf:org/name@v1.0/vectors/all.vec")
    Name(repository='org/name', revision='v1.0', file='vectors/all.vec')
    """
    found = _NAME.fullmatch(name)
    file = found["file"] if found else None
    owned = found is not None and "/" in found["repository"]
    if not found or not (file is None or (owned and _may_be_fetched(file))):
        raise TableFormatError(
            f"{name!r} names nothing on the Hugging Face Hub; names are hf:org/name, hf:org/name@revision "
            "and hf:org/name/file.gguf"
        )
    return Name(found["repository"], found["revision"], file)


def _may_be_fetched(file: str) -> bool:
    return hub_files.safe(file) and "." in file.rsplit("/", 1)[-1]


def fetch(name: str, endpoint: str | None = None, cache: Path | None = None) -> Path:
    """Fetch what opening the table ``name`` needs, and say where it is: a folder, or a file.

    ``endpoint`` is the hub's address and ``cache`` its folder on this machine, if not huggingface's own
    settings. ``TableFormatError`` if ``name`` can be none, ``CheckpointError`` for what the hub says: no such
    repository, revision or file, no access, no connection; or if no file there is a table.
    """
    import huggingface_hub as library

    wanted = parsed(name)
    with _quiet(), _told(name, endpoint or library.constants.ENDPOINT):
        files = _looked_up(wanted, endpoint, cache)
        if wanted.file is None:
            return hub_files.table(files.names, files.read, name)
        if wanted.file not in files.names:
            raise CheckpointError(
                f"{_title(wanted)} has no file {wanted.file!r}; it has {listed(sorted(files.names), 12)}"
            )
        return hub_files.table_file(files.names, wanted.file, files.read)


def _looked_up(name: Name, endpoint: str | None, cache: Path | None) -> _Remote | _Cached:
    """The repository at the hub; without a connection what is on this machine of it, if anything is."""
    from huggingface_hub import utils

    try:
        return _Remote(name, endpoint, cache)
    except utils.HfHubHTTPError:
        raise  # an answer
    except _no_answer():
        cached = _Cached(name, cache)
        if not cached.names:
            raise
        return cached


class _Remote:
    """A repository at the hub: its files' names at one commit, and each file when it is read."""

    def __init__(self, name: Name, endpoint: str | None, cache: Path | None) -> None:
        import huggingface_hub as library

        self._name, self._endpoint, self._cache = name, endpoint, cache
        try:
            about = library.HfApi(endpoint=endpoint).model_info(
                name.repository, revision=name.revision, timeout=_PATIENCE
            )
            self._commit = about.sha
            names = [each.rfilename for each in about.siblings or []]
        except (AttributeError, KeyError, TypeError, json.JSONDecodeError):
            raise CheckpointError(
                f"{_title(name)}: what {endpoint or library.constants.ENDPOINT} answers is no description "
                "of a repository; is it a hub?"
            ) from None
        self.names = [each for each in names if isinstance(each, str) and hub_files.safe(each)]

    def read(self, name: str) -> Path:
        """Where the file is on this machine, once it is fetched."""
        path = Path(self._fetched(name, self._commit))
        here = _folder(self._name.repository, self._cache) / "refs" / (self._name.revision or "main")
        if self._name.revision != self._commit and not (here.is_file() and here.read_text() == self._commit):
            self._fetched(name, self._name.revision)  # the library notes which commit the branch is at
        return path

    def _fetched(self, name: str, revision: str | None) -> str:
        import huggingface_hub as library

        return library.hf_hub_download(
            self._name.repository,
            name,
            revision=revision,
            endpoint=self._endpoint,
            cache_dir=self._cache,
        )


class _Cached:
    """What was fetched of a repository before, for when the hub can't be asked; no names if nothing was."""

    def __init__(self, name: Name, cache: Path | None) -> None:
        folder = _folder(name.repository, cache)
        commit = name.revision or "main"
        if not _COMMIT.fullmatch(commit):
            reference = folder / "refs" / commit
            commit = reference.read_text().strip() if reference.is_file() else ""
        self._folder = folder / "snapshots" / commit
        held = [path for path in self._folder.rglob("*") if path.is_file()] if commit else []
        self.names = [path.relative_to(self._folder).as_posix() for path in held]

    def read(self, name: str) -> Path:
        """Where the file is."""
        return self._folder / name


def _title(name: Name) -> str:
    return SCHEME + name.repository + (f"@{name.revision}" if name.revision else "")


def _folder(repository: str, cache: Path | None) -> Path:
    """Where the cache keeps a repository: ``refs`` say which commit, ``snapshots`` hold the files of each."""
    from huggingface_hub import constants

    return Path(cache or constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def _no_answer() -> tuple[type[Exception], ...]:
    """What comes instead of an answer, whichever library speaks HTTP underneath."""
    import huggingface_hub as library

    transport = (base for base in library.utils.HfHubHTTPError.__bases__ if base is not OSError)
    return (OSError, *transport, getattr(library.errors, "XetDownloadError", OSError))


@contextmanager
def _told(name: str, endpoint: str) -> Iterator[None]:
    """What the hub or the way to it says, in one line each."""
    from huggingface_hub import utils

    wanted = parsed(name)
    log_in = "log in with `hf auth login`, or set HF_TOKEN"
    try:
        yield
    except utils.HFValidationError as error:
        raise TableFormatError(f"{name!r} names nothing on the Hugging Face Hub: {_line(error)}") from None
    except utils.GatedRepoError:
        raise CheckpointError(
            f"{name}: its owner gives access on request; ask for it at {endpoint}/{wanted.repository}, then "
            f"{log_in}"
        ) from None
    except utils.RepositoryNotFoundError:
        raise CheckpointError(
            f"{name}: {endpoint} has no repository {wanted.repository!r} that you may read; if it is "
            f"private, {log_in}"
        ) from None
    except utils.RevisionNotFoundError:
        raise CheckpointError(
            f"{name}: the repository {wanted.repository!r} has no branch, tag or commit {wanted.revision!r}"
        ) from None
    except utils.LocalEntryNotFoundError as error:
        raise CheckpointError(f"{name}: the connection to {endpoint} broke off: {_line(error)}") from None
    except utils.EntryNotFoundError:
        raise CheckpointError(f"{name}: a file that its list names is not there; try again later") from None
    except utils.OfflineModeIsEnabled:
        raise CheckpointError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE forbids to fetch it; unset that"
        ) from None
    except utils.HfHubHTTPError as error:
        status = error.response.status_code
        hint = f"; {log_in}" if status in (401, 403) else "; try again later"
        raise CheckpointError(f"{name}: {endpoint} answers {status}{hint}") from None
    except _no_answer() as error:
        raise CheckpointError(f"{name}: can't fetch it from {endpoint}: {_line(error)}") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's warnings, and with its progress bars only where somebody sees them."""
    from huggingface_hub import utils

    shown = not utils.are_progress_bars_disabled() and not sys.stderr.isatty()
    verbosity = utils.logging.get_verbosity()
    utils.logging.set_verbosity_error()
    if shown:
        utils.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        utils.logging.set_verbosity(verbosity)
        if shown:
            utils.enable_progress_bars()
