"""One table under its switches: a view for each, so that what it has computed serves the next query too."""

from __future__ import annotations

import threading

from tokenspace.geometry.transform import View
from tokenspace.table import Table

MOST = 64  # views; each keeps two numbers a row


class Views:
    """``View`` by switches; the one used longest ago goes when there are too many."""

    def __init__(self, table: Table):
        self._table = table
        self._views: dict[tuple[bool, int], View] = {}
        self._lock = threading.Lock()

    def under(self, center: bool = False, remove: int = 0) -> View:
        """The view of these switches; taking directions out centers, so that one view serves both."""
        key = (center or remove > 0, remove)
        with self._lock:
            view = self._views.pop(key, None) or View(self._table, *key)
            self._views[key] = view
            for old in list(self._views)[:-MOST]:
                del self._views[old]
        return view
