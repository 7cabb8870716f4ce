"""One table under its switches, each kept once it has been read."""

from __future__ import annotations

import threading

from tokenspace.geometry.transform import View
from tokenspace.table import Table

KEPT = 1_500_000_000  # bytes of rows in float32, in all views together
_MOST = 64  # views without their rows cost little


class Views:
    """``View`` by switches. They keep rows in memory while all fit; the one used longest ago goes first."""

    def __init__(self, table: Table, limit: int = KEPT):
        self._table = table
        self._each = 2 * 4 * table.weight.size
        self._held = min(_MOST, limit // self._each)
        self._views: dict[tuple[bool, int], View] = {}
        self._lock = threading.Lock()

    def under(self, center: bool = False, remove: int = 0) -> View:
        """The view of these switches; taking directions out centers, so that one view serves both."""
        key = (center or remove > 0, remove)
        with self._lock:
            view = self._views.pop(key, None) or View(self._table, *key, held=self._held > 0)
            self._views[key] = view
            for old in list(self._views)[: -max(self._held, 1)]:
                del self._views[old]
        return view
