"""Every error that tokenspace raises on purpose.

A message says what was found, what is allowed, and what to do. The command line prints it on one line and
exits with status 1.
"""

from __future__ import annotations

from tokenspace.shown import brief


class TokenspaceError(Exception):
    """The root: ``except TokenspaceError`` catches every error below.

    A message may quote a file, which may hold anything: it is shortened, and shows no control characters.
    """

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(brief(one) if isinstance(one, str) else one for one in arguments))


class TokenIdError(TokenspaceError, IndexError):
    """A token id is not an integer, or lies outside ``0 … V-1``."""


class VocabError(TokenspaceError, LookupError):
    """A token is not in the vocabulary, or a vocabulary can't be what was asked."""


class ShapeError(TokenspaceError, ValueError):
    """Arrays whose axes don't fit each other, or a size that is not allowed."""


class TableFormatError(TokenspaceError, ValueError):
    """A file is not the table it should be; the message names the file and, if known, row and byte offset."""


class OutputError(TokenspaceError, OSError):
    """An output can't be written: what was there before is untouched, unless the message says otherwise."""


class CheckpointError(TokenspaceError):
    """A model's folder lacks a file or a tensor that the task needs, or contradicts itself."""


class EditRefused(TokenspaceError):
    """An edit that would lose something; nothing was written."""


class CorpusError(TokenspaceError):
    """Text that can't be trained on: empty, unreadable, or with nothing left under the minimum count."""


class MissingExtra(TokenspaceError, ImportError):
    """A part of tokenspace needs packages that are not installed; the message names the pip command.

    It names the packages of the ``extra`` themselves, so that it works from a clone and a wheel alike.
    """

    def __init__(self, what: str, extra: str) -> None:
        packages = " ".join(f"'{package}'" for package in packages_of(extra))
        super().__init__(f"{what} needs packages that are not installed; run: pip install {packages}")
        self.extra = extra


def packages_of(extra: str) -> list[str]:
    """Return the packages of an extra as pip takes them; its own name if the metadata lacks it.

    >>> packages_of("umap")
    ['umap-learn>=0.5.7']
    """
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("tokenspace") or []
    except PackageNotFoundError:  # run from a folder, and never installed
        lines = []
    parts = [line.partition(";") for line in lines]
    wanted = re.compile(rf"""\bextra\s*==\s*["']{re.escape(extra)}["']""")
    return [package.strip() for package, _, marker in parts if wanted.search(marker)] or [extra]
