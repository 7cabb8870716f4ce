"""What the ``tokenizers`` library raises, as errors of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tokenspace.errors import TokenspaceError

_PANIC = "PanicException"  # pyo3's, for a panic in Rust: a BaseException, and of a module with no file


@contextmanager
def raised_as(kind: type[TokenspaceError], what: str) -> Iterator[None]:
    """Turn the bare ``Exception`` that the library raises for a damaged file, and a panic inside it, into
    ``kind``: ``what``, a colon, and the library's words. Ours and ``MemoryError`` pass.
    """
    try:
        yield
    except (TokenspaceError, MemoryError):
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == _PANIC:
            raise kind(f"{what}: {error}") from None
        raise
