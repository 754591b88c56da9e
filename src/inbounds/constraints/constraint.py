"""What every constraint answers: is an action allowed, by how much not, and which is the nearest that is."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np

from inbounds.constraints.arrays import (
    SMALLEST,
    Array,
    all_true,
    as_array,
    control_flow,
    convert,
    is_everywhere,
    is_jax,
    is_traced,
    largest,
    namespace_of,
    repeat,
    require_finite,
    rounded_within,
    without_gradient,
    worst_row,
)
from inbounds.constraints.emptiness import Unchanging, refuse_empty, representable, verdict
from inbounds.constraints.expressions import Expression
from inbounds.constraints.situation import Parameter, Question, Situation, read_situation, require_fitting
from inbounds.errors import ConstraintError, InvalidInputError

STRICT_MARGINS = 1.5
"""Margins that a float32 projection keeps, so that `contains` in float64 accepts it too."""

ATTEMPTS = 5
"""How often a point that misses the margin is moved towards the interior before it is given up for it."""


class Constraint(Unchanging):
    """A set C(s) of allowed actions, in the units that `env.step` receives.

    An action is feasible when `violation <= 0` in float64, with no tolerance. `contains` is a little
    stricter, so that what it accepts in float32 is feasible in float64; `project` returns what `contains`
    accepts.

    A subclass states its rows g_i(s, a) <= 0, convex in a, and the geometry that follows from them. Inside,
    arrays have any leading axes and are of the situation's library and type.
    """

    # What a kind of set provides ----------------------------------------------------------------------------

    @abc.abstractmethod
    def excess(self, at: Situation, action: Array) -> Array:
        """Return g_i(s, a) of every row along the last axis; a row is satisfied where it is <= 0."""

    @abc.abstractmethod
    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return `excess` plus the margin of `contains`, row by row."""

    @abc.abstractmethod
    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the Euclidean projection on the set, up to rounding: `project` makes it strict."""

    @abc.abstractmethod
    def interior(self, at: Situation, dimension: int) -> Array:
        """Return a point well inside the set; where there is none, the point that misses the rows least."""

    @abc.abstractmethod
    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Return the largest t >= 0 with point + t * direction accepted, from a point inside; or infinity."""

    def chord(self, at: Situation, point: Array, direction: Array) -> tuple[Array, Array]:
        """Return how far the line through a point inside is accepted, against the direction and along it."""
        return self.reach(at, point, -direction), self.reach(at, point, direction)

    @abc.abstractmethod
    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the rows of `excess` in words, for messages."""

    @abc.abstractmethod
    def formula(self) -> str:
        """Write the set as a short formula."""

    @abc.abstractmethod
    def parameters(self) -> dict[str, Parameter]:
        """Return the constructor's arguments, from which the set can be built again."""

    def size(self) -> int | None:
        """Return the dimension of the action where the parameters tell it."""
        return None

    def members(self) -> tuple[Constraint, ...]:
        """Return the constraints this one is made of; itself where it is elementary."""
        return (self,)

    def is_constant(self) -> bool:
        """Tell whether the set is the same in every state."""
        return not any(isinstance(value, Expression) for value in self.parameters().values())

    @property
    def projection_is_exact(self) -> bool:
        """Tell whether `project` returns the nearest point, up to rounding, and not just a near one."""
        return all(member.projection_is_exact for member in self.members() if member is not self)

    def farthest(self, at: Situation, direction: Array) -> Array:
        """Return a point of the set that is farthest along a direction, up to rounding."""
        raise ConstraintError(
            f"there is no way to find the farthest point of {self.formula()} in a direction. Use a method that "
            f"projects, or intersect fewer kinds of constraints."
        )

    def accepts(self, at: Situation, action: Array) -> Array:
        """Answer `contains` for inputs that were checked before."""
        return all_true(at.xp, self.tightened_excess(at, action) <= 0)

    def accepts_finite(self, at: Situation, action: Array) -> Array:
        """Answer it also for actions that may be infinite, since a compiled function cannot refuse them."""
        accepted = self.accepts(at, action)
        return accepted & all_true(at.xp, at.xp.isfinite(action)) if is_traced(accepted) else accepted

    def worst_excess(self, at: Situation, action: Array) -> Array:
        """Answer `violation` for inputs that were checked before."""
        return worst_row(at.xp, self.excess(at, action))

    # What a user asks ---------------------------------------------------------------------------------------

    def violation(self, observation: Any, action: Any, *, previous_action: Any = None) -> Array:
        """Return the largest excess over all rows, in the row's own units: at most 0 for a feasible one.

        It is +infinity where a number in some row overflows, and never NaN.
        """
        at, array, _ = self.situation(observation, action, previous_action)
        return at.quietly(self.worst_excess, at, array)

    def contains(self, observation: Any, action: Any, *, previous_action: Any = None) -> Array:
        """Tell whether an action is accepted; acceptance implies `violation <= 0` in float64."""
        at, array, _ = self.situation(observation, action, previous_action)
        return at.quietly(self.accepts_finite, at, array)

    def project(self, observation: Any, action: Any, *, previous_action: Any = None) -> Array:
        """Return the nearest accepted action; an accepted action comes back unchanged, bit for bit.

        Where no action is accepted, an error names the conflicting rows; inside a compiled JAX function,
        which cannot raise, the result is NaN instead, and never an action that looks feasible.
        """
        at, array, original = self.situation(observation, action, previous_action)
        xp = at.xp
        accepted = at.quietly(self.accepts_finite, at, array)
        if not is_traced(accepted) and accepted.shape == original.shape[:-1] and is_everywhere(accepted):
            return original
        with np.errstate(all="ignore"):  # a step that overflows is not accepted, and another one follows
            point = at.one_action(self, "nearest", self.nearest(at, array), array.shape)
            moved = self.settled(at, point, original.dtype, refuses=True)
        if is_traced(moved):
            moved = xp.where(xp.all(xp.isfinite(array), axis=-1)[..., None], moved, float("nan"))
        elif moved.ndim == 1:
            return moved
        return xp.where(accepted[..., None], original, moved)

    def interior_point(
        self, observation: Any = None, *, dimension: int | None = None, previous_action: Any = None
    ) -> Array:
        """Return a point strictly inside the set, as far from its rows as the kind of set makes easy.

        Every state of a batch gets a point of its own. Where there is none, the answer is that of `project`.
        """
        at, size = self.situation_without_action(observation, dimension, previous_action)
        with np.errstate(all="ignore"):
            point = at.one_action(self, "interior", self.interior(at, size), (size,))
            self.require_nonempty(at, self.tightened_excess(at, point), size)
        if is_traced(point):
            point = at.xp.where(self.accepts(at, point)[..., None], point, float("nan"))
        return point + convert(np.zeros((*at.batch, size)), at.xp, at.dtype, at.device)

    def distance(self, observation: Any, point: Any, direction: Any, *, previous_action: Any = None) -> Array:
        """Return the largest t >= 0 such that `point + t * direction` is in the set.

        It is infinite where nothing stops the ray, and 0 from a point outside the set.
        """
        at, array, _ = self.situation(observation, point, previous_action)
        heading = as_array("direction", direction)
        at = at._replace(size=max(at.size, require_finite("direction", heading)))
        if heading.shape[-1] != array.shape[-1]:
            raise InvalidInputError(
                f"the direction has {heading.shape[-1]} entries, but the point has {array.shape[-1]}. "
                f"Pass a direction of shape (..., {array.shape[-1]})."
            )
        xp, heading = at.xp, convert(heading, at.xp, at.dtype, at.device)
        # Products with a very large direction would overflow, and with a very small one vanish.
        size = largest(xp, xp.abs(heading))
        size = xp.where(size > 0, size, 1.0)
        with np.errstate(all="ignore"):
            length = self.reach(at, array, heading / size[..., None]) / size
        is_inside = at.quietly(self.worst_excess, at, array) <= 0
        # A length that overflows on the way, or is too small to be rounded reliably, is not known to be allowed.
        return xp.where(is_inside & (length >= SMALLEST), length, 0.0)

    def linear_maximiser(self, observation: Any, gradient: Any, *, previous_action: Any = None) -> Array:
        """Return an accepted action x that maximises sum_i gradient_i x_i: the step of Frank-Wolfe methods."""
        at, direction, original = self.situation(observation, gradient, previous_action)
        with np.errstate(all="ignore"):
            point = self.farthest(at, direction)
        if not is_traced(point) and not is_everywhere(at.xp.isfinite(point)):
            raise ConstraintError(
                f"no action is farthest along this gradient, since {self.formula()} has no end there. "
                f"Bound the set with & Box(low, high)."
            )
        with np.errstate(over="ignore", under="ignore"):
            point = self.settled(at, point, original.dtype)
            is_answer = self.accepts(at, convert(point, at.xp, at.dtype))
        is_answer = is_answer & all_true(at.xp, at.xp.isfinite(point))
        return at.xp.where(is_answer[..., None], point, float("nan"))

    def sample(
        self,
        rng: Any,
        observation: Any = None,
        n: int | None = None,
        dimension: int | None = None,
        *,
        previous_action: Any = None,
    ) -> Array:
        """Draw actions uniformly from the set; `rng` is a numpy Generator or a JAX key.

        With `n` the result has a leading axis of that length, before the batch axes of the observation. Where no
        action is accepted, the answer is that of `project`: an error, or NaN in a compiled JAX function.
        """
        from inbounds.constraints.sampling import draw_uniform

        if n is not None and (not isinstance(n, int | np.integer) or n < 0):
            raise InvalidInputError(f"n={n!r} is not a count of actions. Pass 0 or more, or omit it.")
        at, size = self.situation_without_action(observation, dimension, previous_action, rng)
        return draw_uniform(self, rng, at, size, n)

    def explain(self, observation: Any, action: Any, *, previous_action: Any = None) -> str:
        """Say in words which row an action breaks most and by how much, or how much room is left.

        A batch is explained action by action, one per line, each with its place in the batch.
        """
        at, array, _ = self.situation(observation, action, previous_action)
        rows = np.asarray(at.quietly(self.excess, at, array))
        names = self.row_names(at, array.shape[-1])
        if rows.ndim == 1:
            return verdict(names, rows)
        places = np.ndindex(*rows.shape[:-1])
        return "\n".join(f"action {list(place)}: {verdict(names, rows[place])}" for place in places)

    def __and__(self, other: Constraint) -> Constraint:
        """Return the set of actions that satisfy both."""
        from inbounds.constraints.intersection import intersect

        return intersect(self, other)

    def __or__(self, other: Constraint) -> Constraint:
        """Return the set of actions that satisfy at least one of the two; it need not be convex."""
        from inbounds.constraints.union import Union

        return Union((self, other))

    def __bool__(self) -> bool:
        """Refuse: `one and other` would drop the first set without a word, and `not one` means nothing."""
        raise ConstraintError(
            f"{self.formula()} is a set of actions and has no truth value. Join sets with & and |, not with `and` and "
            f"`or`; compare with None by `is None`; ask about an action by contains(observation, action)."
        )

    def to_json(self) -> dict[str, Any]:
        """Return the set as plain data; `Constraint.from_json` builds it again."""
        from inbounds.constraints.serialisation import constraint_to_json

        return constraint_to_json(self)

    @staticmethod
    def from_json(data: Any, *, allow_code: bool = False) -> Constraint:
        """Build the set that `to_json` described; functions are only imported with `allow_code=True`."""
        from inbounds.constraints.serialisation import constraint_from_json

        return constraint_from_json(data, allow_code=allow_code)

    def __repr__(self) -> str:
        """Show the constructor's call."""
        arguments = ", ".join(
            f"{name}={value!s}" for name, value in self.parameters().items() if value is not None
        )
        return f"{type(self).__name__}({arguments})"

    # How an answer is made strict ---------------------------------------------------------------------------

    def settled(self, at: Situation, point: Array, dtype: Any, *, refuses: bool = False) -> Array:
        """Round a projection to the type of the answer and move it inside where it is not accepted then.

        Where nothing is accepted, numbers that are known are refused with an error. A compiled function cannot
        raise: with `refuses` its answer is NaN, and otherwise the point that misses the rows least.
        """
        xp = at.xp
        rounded = convert(point, xp, dtype)
        # What is computed in float32 must also be accepted where the same question is asked in float64.
        strict = at._replace(margins=STRICT_MARGINS) if at.is_single_precision else at
        is_done = self.accepts(strict, convert(rounded, xp, at.dtype))
        if not is_traced(is_done):
            return rounded if is_everywhere(is_done) else self.pulled_inside(strict, point, dtype)

        def moved() -> Array:
            inside = self.pulled_inside(strict.without_gradient(), without_gradient(point), dtype)
            if refuses:
                is_answer = self.accepts(at.without_gradient(), convert(inside, xp, at.dtype))
                inside = xp.where(is_answer[..., None], inside, float("nan"))
            # The last step is as small as rounding: the gradient is that of the projection.
            return inside + xp.where(xp.isfinite(rounded), rounded - without_gradient(rounded), 0.0)

        return control_flow(is_done).cond(xp.all(is_done), lambda: rounded, moved)

    def pulled_inside(self, at: Situation, point: Array, dtype: Any) -> Array:
        """Move points that are not accepted towards the interior, by little more than convexity asks for.

        For convex rows g((1-t) x + t c) <= (1-t) g(x) + t g(c): the part t = g(x) / (g(x) - g(c)) of the way
        to a point c inside is enough, up to rounding; hence a few attempts with growing lead, and at last c
        itself.
        """
        xp = at.xp
        centre = at.one_action(self, "interior", self.interior(at, point.shape[-1]), point.shape)
        inside = self.tightened_excess(at, centre)
        self.require_nonempty(at, inside, point.shape[-1])
        rounding = float(np.finfo(np.float32).eps)

        def attempt(index: Any, point: Array) -> Array:
            lead = 1.1 * 3.0**index
            outside = self.tightened_excess(at, convert(rounded_within(point, xp, dtype), xp, at.dtype))
            is_missed = outside > 0
            miss, depth = xp.where(is_missed, outside, 0.0), xp.where(is_missed, -inside, 1.0)
            share = xp.where(is_missed, lead * (miss / (miss + depth) + rounding), 0.0)
            step = xp.minimum(xp.max(share, axis=-1), 1.0)[..., None]
            return self.within_exact_bounds(at, point + step * (centre - point))

        shape = np.broadcast_shapes(tuple(point.shape), tuple(centre.shape))
        rounded = rounded_within(repeat(ATTEMPTS, attempt, xp.broadcast_to(point, shape)), xp, dtype)
        # A compiler may round the same rows differently here and in the attempts: ask for less than they did.
        loose = at._replace(margins=1.0)
        is_settled = self.accepts(loose, convert(rounded, xp, at.dtype))
        answer = xp.where(is_settled[..., None], rounded, rounded_within(centre, xp, dtype))
        return answer if is_traced(answer) else representable(self, loose, answer, (point, centre))

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Undo what rounding did to rows that are compared without a margin; only boxes have such rows."""
        return action

    def require_nonempty(self, at: Situation, inside: Array, dimension: int) -> None:
        """Refuse a set whose interior point is not accepted, naming the rows that conflict."""
        if not is_traced(inside) and not is_everywhere(inside <= 0):
            refuse_empty(self, at, inside, dimension)

    # How a question is read ---------------------------------------------------------------------------------

    def situation(self, observation: Any, action: Any, previous_action: Any = None) -> Question:
        """Check the inputs and read them in the action's array library."""
        original = as_array("action", action)
        size = require_finite("action", original)
        for source in (observation, previous_action):
            if isinstance(original, np.ndarray) and is_traced(source):
                original = namespace_of(source).asarray(original)  # numpy cannot read what has no values
        if original.shape[-1] == 0:
            raise InvalidInputError(
                f"the action has shape {tuple(original.shape)}, without any entry to check. Pass one number or more."
            )
        expected = self.size()
        if expected is not None and original.shape[-1] != expected:
            raise InvalidInputError(
                f"the action has {original.shape[-1]} entries, but {self.formula()} speaks of {expected}. "
                f"Pass an action of shape (..., {expected})."
            )
        at = read_situation(original, observation, previous_action, size)
        require_fitting(self, at, original.shape[-1], tuple(original.shape[:-1]))
        array = convert(original, at.xp, at.dtype)
        # Integers and half precision cannot hold a projection; their answers come in the working type.
        is_kept = original.dtype == at.xp.float64 or original.dtype == at.xp.float32
        return Question(at, array, original if is_kept else array)

    def situation_without_action(
        self, observation: Any, dimension: int | None, previous_action: Any, rng: Any = None
    ) -> tuple[Situation, int]:
        """Return the situation where no action tells the array library, and the dimension of the action."""
        if (size := self.size() if self.size() is not None else dimension) is None:
            raise InvalidInputError(
                f"{self.formula()} does not tell how many entries an action has. "
                f"Pass dimension=, or give Box arrays of bounds instead of single numbers."
            )
        if dimension is not None and dimension != size:
            raise InvalidInputError(
                f"dimension={dimension} was given, but {self.formula()} speaks of {size} entries. Omit it."
            )
        if size < 1:
            raise InvalidInputError(f"dimension={dimension}, but an action has entries. Pass 1 or more.")
        like: Any = observation if observation is not None else previous_action
        like = np.zeros(1) if like is None else as_array("observation", like)
        if is_jax(rng):
            like = rng
        at = read_situation(like, observation, previous_action)
        require_fitting(self, at, int(size))
        return at, int(size)
