"""Noise for many actions at once: drawing a few numbers costs nearly as much as drawing a thousand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = 1024
"""Rows that are drawn at once."""


class NoiseStore:
    """Hands out rows of standard normal or Student's noise in the order in which the generator draws them."""

    def __init__(self, rng: np.random.Generator, size: int, degrees: float | None) -> None:
        """Draw rows of `size` numbers; `degrees` of freedom make them Student's."""
        self.rng, self._size, self._degrees = rng, size, degrees
        self._rows, self._used = np.empty((0, size), np.float32), 0

    def rows(self, count: int) -> NDArray[np.float32]:
        """Return the next rows; they are not to be written into."""
        end = self._used + count
        if end > len(self._rows):
            shape = (max(LEAST, count), self._size)
            fresh = (
                self.rng.standard_normal(shape, dtype=np.float32)
                if self._degrees is None
                else self.rng.standard_t(self._degrees, shape).astype(np.float32)
            )
            self._rows, self._used, end = np.concatenate([self._rows[self._used :], fresh]), 0, count
        taken: NDArray[np.float32] = self._rows[self._used : end]
        self._used = end
        return taken
