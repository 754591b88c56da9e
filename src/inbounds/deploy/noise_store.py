"""Noise for many actions at once: drawing a few numbers costs nearly as much as drawing some hundred."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = 256
"""Rows that are drawn at once; more would keep the action that has to wait for them too long."""


class NoiseStore:
    """Hands out rows of standard normal or Student's noise in the order in which the generator draws them."""

    def __init__(self, rng: np.random.Generator, size: int, degrees: float | None) -> None:
        """Draw rows of `size` numbers; `degrees` of freedom make them Student's."""
        self.rng, self._size, self._degrees = rng, size, degrees
        self._rows, self._used = np.empty((0, size), np.float32), 0

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the next rows; they are not to be written into."""
        # Threads that meet here may get the same rows, but never fewer than they asked for.
        rows, used = self._rows, self._used
        end = used + count
        if end > len(rows):
            shape = (max(LEAST, count), self._size)
            fresh = (
                self.rng.standard_normal(shape, dtype=np.float32)
                if self._degrees is None
                else self.rng.standard_t(self._degrees, shape).astype(np.float32)
            )
            rows, used, end = np.concatenate([rows[used:], fresh]), 0, count
            self._rows = rows
        self._used = end
        return rows[used:end]

    def take_back(self, count: int) -> None:
        """Hand out the last rows once more; nothing may have depended on them."""
        self._used = max(self._used - count, 0)
