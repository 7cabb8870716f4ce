"""A matrix whose number of rows is not known, or not believed, before they are read."""

from __future__ import annotations

import numpy as np

from tokenspace.shapes import Array, Float


class GrowingRows:
    """Rows of float32, appended in blocks. Memory is taken for what came, and an eighth more at most.

    ``rows`` is how many will come, where that is known and believed: then nothing ever grows.

    >>> grown = GrowingRows()
    >>> grown.add(np.ones((2, 3), np.float32))
    >>> grown.add(np.zeros((1, 3), np.float32))
    >>> grown.matrix().shape
    (3, 3)
    """

    def __init__(self, rows: int = 0) -> None:
        self.filled, self._expected = 0, rows
        self._held = np.empty((0, 0), np.float32)

    def room(self, rows: int, dim: int) -> Float[Array, "K D"]:
        """The place of the next ``rows`` rows, for the caller to fill; ``dim`` is the same every time."""
        needed = self.filled + rows
        if not self.filled:
            self._held = np.empty((max(needed, self._expected), dim), np.float32)
        elif needed > len(self._held):
            size = max(needed, self.filled + self.filled // 8)
            self._held.resize((size, dim), refcheck=False)  # moves pages, copies none
        place = self._held[self.filled : needed]
        self.filled = needed
        return place

    def add(self, block: Float[Array, "K D"]) -> None:
        """Append the rows of ``block``."""
        self.room(*block.shape)[:] = block

    def matrix(self) -> Float[Array, "V D"]:
        """All rows; nothing can be added after."""
        if len(self._held) != self.filled:
            self._held.resize((self.filled, self._held.shape[1]), refcheck=False)
        return self._held
