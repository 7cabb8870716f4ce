"""Every error that tokenspace raises on purpose.

A message says what was found, what is allowed, and what to do. The command line prints it on one line and
exits with status 1.
"""


class TokenspaceError(Exception):
    """The root: ``except TokenspaceError`` catches every error below."""


class TokenIdError(TokenspaceError, IndexError):
    """A token id is not an integer, or lies outside ``0 … V-1``."""


class VocabError(TokenspaceError, LookupError):
    """A token is not in the vocabulary, or a vocabulary can't be what was asked."""


class ShapeError(TokenspaceError, ValueError):
    """Arrays whose axes don't fit each other, or a size that is not allowed."""


class TableFormatError(TokenspaceError, ValueError):
    """A file is not the table it should be; the message names the file and, if known, row and byte offset."""


class OutputError(TokenspaceError, OSError):
    """An output can't be written; whatever was there before is untouched."""


class CheckpointError(TokenspaceError):
    """A model's folder lacks a file or a tensor that the task needs, or contradicts itself."""


class EditRefused(TokenspaceError):
    """An edit that would lose something; nothing was written."""


class CorpusError(TokenspaceError):
    """Text that can't be trained on: empty, unreadable, or with nothing left under the minimum count."""


class MissingExtra(TokenspaceError, ImportError):
    """A part of tokenspace needs packages that are not installed; the message names the pip command."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs packages that are not installed; run: pip install 'tokenspace[{extra}]'"
        )
        self.extra = extra
