"""Rows of a table whose optimizer steps are postponed until someone reads the row.

``tokenspace.optim.SparseAdamW(exact=True)`` gives the numbers of an optimizer that moves every row at every
step, without touching them all: a row's missed steps are done when it is next read. So whoever is about to
read rows says so first. The modules of ``tokenspace.nn`` do: the lookup for its ids; the head, saving,
copying, `project_` and whatever writes rows for the whole table.

Bringing a row up to date is no change of the table in autograd's eyes: it writes the numbers that the row
was meant to hold all along, and nothing has read the old ones since the step that left them behind.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from torch import Tensor

CatchUp = Callable[[Tensor | None], None]
"""Brings the rows of the ids given (\\*axes), all of them valid, up to date in place; all rows for None."""

_Kept = tuple[weakref.ref[Tensor], weakref.WeakMethod[CatchUp]]
_KEPT: tuple[_Kept, ...] = ()  # replaced, never changed, so that a reader needs no lock


def keep(weight: Tensor, catch_up: CatchUp) -> None:
    """From now on have ``catch_up``, a bound method, called before rows of ``weight`` are read.

    Whoever kept this table before is asked for all of its rows, and let go. Nothing is kept alive by this:
    not the table, nor the method's object.

    >>> import torch
    >>> class Late:
    ...     def catch_up(self, ids):
    ...         table[ids] = 1.0
    >>> table, late = torch.zeros(3, 1), Late()
    >>> keep(table, late.catch_up)
    >>> read(table, torch.tensor([2]))
    >>> table.T
    tensor([[0., 0., 1.]])
    """
    global _KEPT
    mine = weakref.WeakMethod(catch_up)
    others = []
    for kept in _KEPT:
        table, method = kept[0](), kept[1]()
        if table is None or method is None or kept[1] == mine:
            continue
        if table is weight:
            method(None)
        else:
            others.append(kept)
    _KEPT = (*others, (weakref.ref(weight), mine))


def kept_by(weight: Tensor) -> CatchUp | None:
    """What `keep` was last given for this very tensor, if that is still alive."""
    return next((method() for table, method in _KEPT if table() is weight), None)


def is_kept(weight: Tensor) -> bool:
    """Whether rows of this table, or of one in the same memory, may have steps left to be done."""
    if not _KEPT:
        return False
    address = weight.data_ptr()
    tables = [table() for table, method in _KEPT if method() is not None]
    return any(table is not None and table.data_ptr() == address for table in tables)


def read(weight: Tensor, ids: Tensor | None = None) -> None:
    """Call this before reading the rows ``ids`` (\\*axes; all rows if left out) of a table, or writing them.

    ``weight`` is known by where its numbers lie, so a detached or plain tensor of the same memory, as
    compiled code has it, will do; a slice will not. The ids are rows of the table, checked before.
    """
    if not _KEPT:
        return
    address = weight.data_ptr()
    for table, method in _KEPT:
        kept, catch_up = table(), method()
        if kept is not None and catch_up is not None and address and kept.data_ptr() == address:
            catch_up(ids)
