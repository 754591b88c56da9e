"""Simplices: shares of a total that are nonnegative and may be capped."""

from __future__ import annotations

from typing import Any

from inbounds.constraints.arrays import Array
from inbounds.constraints.parameters import parameter, show
from inbounds.constraints.references import Reference
from inbounds.constraints.situation import Parameter, Situation, relative_margin
from inbounds.constraints.sum_band import Band, SumBand
from inbounds.errors import EmptySetError

RELATIVE_TOLERANCE = 1e-5


class Simplex(SumBand):
    """Actions with `sum_i a_i = total`, `a_i >= 0` and, where given, `a_i <= high_i`.

    An equality holds in floating point only up to a tolerance: `|sum_i a_i - total| <= tolerance`, by default
    1e-5 of the total, or four margins of a sum where there are so many entries that this is more.
    """

    def __init__(
        self, total: Parameter = 1.0, high: Parameter | None = None, tolerance: Parameter | None = None
    ) -> None:
        """Store total (a positive number or an entry of obs), caps, and the tolerance of the equality."""
        self._states_tolerance = tolerance is not None
        amount: Any = parameter("Simplex", "total", total, 0)
        if not isinstance(amount, Reference) and amount <= 0:
            raise EmptySetError(
                f"Simplex: total={float(amount):g}, but nonnegative shares add up to more. Make it positive."
            )
        super().__init__(amount, amount * RELATIVE_TOLERANCE if tolerance is None else tolerance, 0.0, high)

    def allowed_sums(self, at: Situation, dimension: int) -> Band:
        """Return the allowed sums; the tolerance grows with the number of entries unless it was given."""
        band = super().allowed_sums(at, dimension)
        if self._states_tolerance:
            return band
        amount = at.value(self.total, axes=0)
        tolerance = 4.0 * relative_margin(dimension) * band.upper_scale
        lower, upper = (
            at.xp.minimum(band.lower, amount - tolerance),
            at.xp.maximum(band.upper, amount + tolerance),
        )
        return band._replace(lower=lower, upper=upper)

    def goal(self, at: Situation, dimension: int, size: Array) -> tuple[Array, Array]:
        """Let projections meet the equality itself; its tolerance is left to rounding."""
        amount = at.value(self.total, axes=0)
        return amount, amount

    def formula(self) -> str:
        """Write the equality and the caps."""
        caps = "" if self.high is None else f" <= {show(self.high)}"
        return f"sum_i a_i = {show(self.total)}, 0 <= a_i{caps}"

    def parameters(self) -> dict[str, Parameter]:
        """Return total, caps and the tolerance where it was given."""
        tolerance = self.tolerance if self._states_tolerance else None
        return {"total": self.total, "high": self.high, "tolerance": tolerance}
