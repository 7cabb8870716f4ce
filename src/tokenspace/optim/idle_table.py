"""One table under ``SparseAdamW(exact=True)``: its rows' missed steps, done when somebody reads them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tokenspace.errors import TokenspaceError
from tokenspace.kernels.catch_up import Behind, IdleRows
from tokenspace.kernels.update import AdamStep
from tokenspace.nn import pending_rows
from tokenspace.nn.arrays import array_over
from tokenspace.optim.touched import array_of


class IdleTable:
    """``state`` is the optimizer's for this weight: its moments are looked up there at each use.

    `catch_up` may be called from any thread, and from the garbage collector: two at once would do the same
    steps twice, so one waits for the other.
    """

    def __init__(self, weight: Tensor, state: dict[str, Any], eps: float) -> None:
        self._weight, self._state, self._dtype = weight, state, weight.dtype
        self._rows = IdleRows(self._table(), eps)
        self._lock = threading.Lock()
        self._closed = False

    def fits(self) -> bool:
        """Whether the table is still of the type and size that this was made for."""
        return self._weight.dtype == self._dtype and len(self._weight) == len(self._rows)

    def watch(self) -> None:
        """Have whoever reads the table call `catch_up`."""
        if pending_rows.kept_by(self._weight) != self.catch_up:
            pending_rows.keep(self._weight, self.catch_up)

    @torch.no_grad()
    def catch_up(self, ids: Tensor | None = None) -> None:
        """Do the missed steps of the rows ``ids`` (\\*axes), or of all rows."""
        if not self._rows.step:
            return
        with self._lock:
            self._catch_up(None if ids is None else array_over(ids.reshape(-1).to(torch.int64)))
        if self._closed:
            self._settle()

    def behind(self, ids: np.ndarray) -> Behind:
        """Which of the rows ``ids`` (U,) are not what they would be without postponed steps?"""
        return self._rows.behind(ids, array_of(self._state["exp_avg"]))

    def make_room(self, step: AdamStep) -> None:
        """Bring all rows up to date if `record` could not take the step."""
        if not self._rows.has_room(step):
            self.catch_up()

    def record(self, touched: np.ndarray, step: AdamStep) -> None:
        """The rows ``touched`` have done this step; all others miss it."""
        with self._lock:
            self._rows.record(touched, step)

    def close(self) -> None:
        """The optimizer is gone: do all that is left, now or once a `catch_up` that runs has ended."""
        self._closed = True
        self._settle()

    def _settle(self) -> None:
        if self._rows.step and self._lock.acquire(blocking=False):
            try:
                self._catch_up(None)
            finally:
                self._lock.release()

    def _catch_up(self, ids: np.ndarray | None) -> None:
        moments = array_of(self._state["exp_avg"]), array_of(self._state["exp_avg_sq"])
        self._rows.catch_up(self._table(), *moments, ids, torch.get_num_threads())

    def _table(self) -> np.ndarray:
        weight = self._weight.detach()
        if not (weight.is_cpu and weight.is_contiguous()):
            raise TokenspaceError(
                f"SparseAdamW(exact=True) brings rows up to date on the CPU; this table is on {weight.device}"
                f"{'' if weight.is_contiguous() else ', not contiguous'}. Call flush() before moving it, and "
                "go on with exact=False there"
            )
        if len(self._state.get("exp_avg", weight)) != len(weight):
            raise TokenspaceError(
                f"a table under SparseAdamW(exact=True) had {len(self._state['exp_avg']):,} rows and now has "
                f"{len(weight):,}; change its size with TokenEmbedding.add_rows, and make a new optimizer"
            )
        return array_of(weight)
