"""Token ids: any integer type in, one out-of-range contract on every path."""

from __future__ import annotations

import numpy as np

from tokenspace.errors import TokenIdError
from tokenspace.shapes import Array, ArrayLike, Int


def checked_ids(ids: ArrayLike, rows: int, what: str = "token id") -> Int[Array, "*axes"]:
    """Return ``ids`` as an integer array whose every value indexes a table of ``rows`` rows.

    An id is never wrapped, clipped or rounded: a negative id, an id ≥ ``rows``, a float or a boolean raises
    ``TokenIdError`` (also an ``IndexError``) that names how many ids are bad and where the first one is.
    ``what`` names the ids in that message ("token id", "position id", ...).

    >>> checked_ids([[0, 2], [1, 1]], rows=3)
    array([[0, 2],
           [1, 1]])
    >>> checked_ids([[0, 1], [3, -1]], rows=3)
    Traceback (most recent call last):
    ...
    tokenspace.errors.TokenIdError: 2 of 4 token ids are outside this table of 3 rows; the first is 3 at \
batch 1, position 0 (valid: 0 to 2). Is the tokenizer larger than the table?
    """
    try:
        array = np.asarray(ids)
    except ValueError as error:  # ragged lists
        raise TokenIdError(
            f"{what}s must form a rectangular array; pad the shorter texts to one length first ({error})"
        ) from None
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TokenIdError(
            f"{what}s must be integers, found {array.dtype} (first value: {_plain(array.flat[0])!r}); "
            "convert them where they are made: a rounded id selects another token's row"
        )
    if int(array.min()) >= 0 and int(array.max()) < rows:  # no temporaries the size of the batch
        return array
    raise TokenIdError(_describe(array, rows, what))


def _plain(value: object) -> object:
    """Return a NumPy scalar as Python writes it: 'a', not np.str_('a')."""
    return value.item() if isinstance(value, np.generic) else value


def _describe(array: np.ndarray, rows: int, what: str) -> str:
    bad = (array < 0) | (array >= rows)
    first = tuple(int(axis[0]) for axis in np.nonzero(bad)) if array.ndim else ()
    value = int(array[first])
    places = {0: "", 1: " at position {}", 2: " at batch {}, position {}"}
    where = places.get(array.ndim, f" at index {first}").format(*first)
    valid = f"valid: 0 to {rows - 1:,}" if rows else "none is valid: the table is empty"
    are = "is" if bad.sum() == 1 else "are"
    return (
        f"{int(bad.sum()):,} of {array.size:,} {what}s {are} outside this table of {rows:,} rows; "
        f"the first is {value:,}{where} ({valid}). {_likely_cause(value, what)}"
    )


def _likely_cause(value: int, what: str) -> str:
    if what != "token id":
        return "Check how they are made."
    if value == -100:
        return "-100 marks labels that the loss ignores: were labels passed as ids?"
    if value < 0:
        return "A negative id would wrap to the table's end: is it a padding or ignore marker?"
    return "Is the tokenizer larger than the table?"
