"""A mean and how sure it is, as results store it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def with_error(samples: ArrayLike) -> dict[str, float]:
    """Return the mean of independent samples and its standard error; what is not finite is refused."""
    values = np.asarray(samples, np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a sample is not a finite number. Look for what broke the simulation that drew it.")
    return {"mean": float(values.mean()), "standard_error": float(values.std(ddof=1) / np.sqrt(len(values)))}
