"""Oracles: sets that are known only through a function that tells whether an action is allowed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from inbounds.constraints.arrays import Array, convert, dot, is_everywhere, is_jax, largest, stack_rows
from inbounds.constraints.constraint import Constraint
from inbounds.constraints.situation import Parameter, Situation
from inbounds.errors import ConstraintError, EmptySetError, InvalidInputError
from inbounds.limits import is_whole

Membership = Callable[[Any, Any], Any]
"""A function of observation and action that returns a boolean, or booleans for a batch of them."""

SCALES = 12
HALVINGS = 20
ROUNDS = 3
GRID = 64


class Oracle(Constraint):
    """Actions for which `function(observation, action)` is true and which lie in another set, if one is given.

    Nothing is known about the shape of the set, so that nothing about it is exact: the projection is the
    nearest feasible one of many samples, drawn with a fixed seed at all distances from the action and moved
    towards it as far as they stay feasible. Its `violation` is 0 or 1, for allowed and not allowed.

    Args:
        function: The membership function, or where to import it from, as "package.module:function".
        dimension: The number of entries of an action, where `within` does not tell.
        within: A set that actions must lie in as well, usually a `Box`; samples are drawn from it.
        is_batched: Whether the function takes arrays with leading axes; otherwise it is called in a loop.
        samples: How many points a projection tries.
        observation_size: How many entries of the observation the function is given, from the first on; None for all.
            `ib.Task` sets it where it appends numbers to the observation of the environment.
    """

    _is_made_anew_by_joining = True

    def __init__(
        self,
        function: Membership | str,
        dimension: int | None = None,
        within: Constraint | None = None,
        is_batched: bool = False,
        samples: int = 2000,
        observation_size: int | None = None,
    ) -> None:
        """Import the function where it is named by its path, and check what can be checked."""
        self.function: Membership = _imported(function) if isinstance(function, str) else function
        self._named = function if isinstance(function, str) else _path(function) or function
        if not callable(self.function):
            raise ConstraintError(
                f"Oracle: {function!r} cannot be called. Pass a function of observation and action."
            )
        if not is_whole(samples, 1):
            raise ConstraintError(
                f"Oracle: samples={samples!r}, but a whole number of at least one is needed. Use the default."
            )
        if observation_size is not None and not is_whole(observation_size, 1):
            raise ConstraintError(
                f"Oracle: observation_size={observation_size!r}, but a whole number of at least one is needed. Leave "
                f"it out to give the function the whole observation."
            )
        if within is not None and not isinstance(within, Constraint):
            raise ConstraintError(
                f"Oracle: within={within!r} is not a constraint. Pass one, such as Box(low, high)."
            )
        size = within.size() if within is not None else None
        if size is not None and dimension is not None and size != dimension:
            raise ConstraintError(
                f"Oracle: dimension={dimension}, but {within.formula() if within is not None else ''} speaks of {size} "
                f"entries. Leave dimension out."
            )
        self.within, self.is_batched, self.samples = within, bool(is_batched), int(samples)
        self.observation_size = None if observation_size is None else int(observation_size)
        self._size = size if size is not None else dimension

    @property
    def projection_is_exact(self) -> bool:
        """Say no: the projection is the nearest of finitely many samples."""
        return False

    def restricted_to(self, other: Constraint) -> Constraint:
        """Return the intersection with another set, from which samples are then drawn."""
        within = other if self.within is None else self.within & other
        return Oracle(self._named, self._size, within, self.is_batched, self.samples, self.observation_size)

    def is_member(self, at: Situation, action: Array) -> Array:
        """Ask the function about every action."""
        if is_jax(action):
            return self._is_member_in_jax(at, action)
        answers = self._ask(at.observation, action)
        return answers if at.xp is np else at.xp.asarray(answers)

    def excess(self, at: Situation, action: Array) -> Array:
        """Return 0 or 1 for the function, then the rows of the other set."""
        return self._rows(at, action, None if self.within is None else self.within.excess(at, action))

    def tightened_excess(self, at: Situation, action: Array) -> Array:
        """Return 0 or 1 for the function, which has no margin, then the tightened rows of the other set."""
        return self._rows(
            at, action, None if self.within is None else self.within.tightened_excess(at, action)
        )

    def nearest(self, at: Situation, action: Array) -> Array:
        """Return the nearest feasible of many samples; later rounds sample around the best one so far."""
        xp = at.xp
        sources = [source for source in (at.observation, at.previous_action) if source is not None]
        lead = np.broadcast_shapes(action.shape[:-1], *(source.shape[:-1] for source in sources))
        action = xp.broadcast_to(action, (*lead, action.shape[-1]))
        count = max(self.samples // ROUNDS, 1)
        best = self._nearest_of(at, action, self._first_candidates(at, action, count))
        for index in range(1, ROUNDS):
            best = self._towards(at, action, best)
            away = best - action
            size = (xp.sqrt(dot(xp, away, away)) + 1e-3)[..., None]
            around = _rounded(at, best + size * self._steps(at, action, count, seed=index))
            if self.within is not None:
                around = _rounded(at, self.within.nearest(at, around))
            best = self._nearest_of(at, action, xp.concat([best[None, ...], around], axis=0))
        return self._towards(at, action, best)

    def pulled_inside(self, at: Situation, point: Array, dtype: Any) -> Array:
        """Search again from a point that is not accepted, and refuse where nothing is found."""
        xp = at.xp
        found = convert(self.nearest(at, point), xp, dtype)
        is_found = self.accepts(at, convert(found, xp, at.dtype))
        self.require_nonempty(
            at, xp.where(is_found, 0.0, 1.0 + 0.0 * point[..., 0])[..., None], point.shape[-1]
        )
        return found

    def require_nonempty(self, at: Situation, inside: Array, dimension: int) -> None:
        """Refuse a set of which no sample is feasible; it may still have feasible actions."""
        if is_jax(inside) and type(inside).__name__.endswith("Tracer"):
            return
        if not is_everywhere(inside <= 0):
            raise EmptySetError(
                f"none of {self.samples} samples satisfies {self.formula()}. If the set is not empty but small, "
                f"say where it lies with within=Box(low, high), or raise samples."
            )

    def interior(self, at: Situation, dimension: int) -> Array:
        """Return a feasible point near the middle of the other set, or near zero."""
        xp = at.xp
        if self.within is not None:
            return self.nearest(at, self.within.interior(at, dimension))
        lead = () if at.observation is None else at.observation.shape[:-1]
        return self.nearest(at, xp.zeros((*lead, dimension), dtype=at.dtype))

    def reach(self, at: Situation, point: Array, direction: Array) -> Array:
        """Follow the ray on a grid up to the first point outside, and halve the last interval."""
        xp = at.xp
        if self.within is None:
            farthest: Array = 2.0 * (1.0 + largest(xp, xp.abs(point)))
        else:
            farthest = self.within.reach(at, point, direction)
            farthest = xp.where(xp.isfinite(farthest), farthest, 2.0 * (1.0 + largest(xp, xp.abs(point))))
        low = 0.0 * farthest
        is_open = xp.ones_like(low, dtype=xp.bool)
        for index in range(1, GRID + 1):
            length = farthest * (index / GRID)
            is_open = is_open & self.accepts(at, point + length[..., None] * direction)
            low = xp.where(is_open, length, low)
        high = xp.minimum(low + farthest / GRID, farthest)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            is_inside = self.accepts(at, point + middle[..., None] * direction)
            low, high = xp.where(is_inside, middle, low), xp.where(is_inside, high, middle)
        return low

    def within_exact_bounds(self, at: Situation, action: Array) -> Array:
        """Clip to the exact bounds of the other set."""
        return action if self.within is None else self.within.within_exact_bounds(at, action)

    def explain(self, observation: Any, action: Any, *, previous_action: Any = None) -> str:
        """Say what the function answered; it cannot say by how much, and its projection is approximate."""
        at, array, _ = self.situation(observation, action, previous_action)
        is_member = np.reshape(np.asarray(self.is_member(at, array)), -1)
        verdicts = [f"{self._name()} {'allows' if answer else 'does not allow'} it" for answer in is_member]
        lines = [
            f"{verdict} (a function tells no distance; `project` is approximate)." for verdict in verdicts
        ]
        if self.within is not None:
            others = self.within.explain(observation, action, previous_action=previous_action).splitlines()
            lines = [f"{line} Besides: {other}" for line, other in zip(lines, others, strict=True)]
        return "\n".join(lines)

    def row_names(self, at: Situation, dimension: int) -> list[str]:
        """Name the function, then the rows of the other set."""
        names = [f"{self._name()} is true"]
        return names if self.within is None else names + self.within.row_names(at, dimension)

    def formula(self) -> str:
        """Write the call of the function, and the other set."""
        text = f"{self._name()}(s, a)"
        return text if self.within is None else f"{text} and {self.within.formula()}"

    def parameters(self) -> dict[str, Parameter]:
        """Return the arguments; the function by its import path where it has one."""
        return {
            "function": self._named,
            "dimension": self._size,
            "within": self.within,
            "is_batched": self.is_batched,
            "samples": self.samples,
            "observation_size": self.observation_size,
        }

    def size(self) -> int | None:
        """Return the dimension where it was given."""
        return self._size

    def is_constant(self) -> bool:
        """Say no: a function may depend on the observation."""
        return False

    def _rows(self, at: Situation, action: Array, others: Array | None) -> Array:
        xp = at.xp
        row = xp.where(self.is_member(at, action), 0.0, xp.ones_like(action[..., 0]))[..., None]
        return row if others is None else stack_rows(xp, [row, others])

    def _first_candidates(self, at: Situation, action: Array, count: int) -> Array:
        """Return points at all distances from an action and, where there is another set, all over that set."""
        xp, dimension = at.xp, action.shape[-1]
        steps = self._steps(at, action, count, seed=0)
        if self.within is None:
            size = 10.0 * (1.0 + largest(xp, xp.abs(action)))[..., None]
            return _rounded(at, action + size * steps)
        start = self.within.settled(at, self.within.nearest(at, action), at.dtype)
        centre = self.within.interior(at, dimension)
        away = start - centre
        size = 2.0 * xp.sqrt(dot(xp, away, away))[..., None] + 1e-3
        near = self.within.nearest(at, start + size * steps)
        length = self.within.reach(at, centre + 0.0 * steps, steps)
        shares = np.random.default_rng(1).random((count, *(1,) * action.ndim))
        places = (
            convert(shares, xp, at.dtype, at.device) * xp.where(xp.isfinite(length), length, 1.0)[..., None]
        )
        everywhere = xp.broadcast_to(centre + places * steps, near.shape)
        return _rounded(at, xp.concat([near, everywhere], axis=0))

    def _steps(self, at: Situation, action: Array, count: int, seed: int) -> Array:
        """Return steps of all sizes up to 1 in all directions, along a first axis; the same ones every time."""
        dimension = action.shape[-1]
        rng = np.random.default_rng(seed)
        heading = rng.standard_normal((count, dimension))
        heading /= np.linalg.norm(heading, axis=-1, keepdims=True)
        sizes = np.geomspace(1e-3, 1.0, SCALES)[rng.integers(SCALES, size=count)]
        steps = heading * (sizes * rng.random(count) ** (1.0 / dimension))[:, None]
        shaped = np.reshape(steps, (count, *(1,) * (action.ndim - 1), dimension))
        return convert(shaped, at.xp, at.dtype, at.device)

    def _nearest_of(self, at: Situation, action: Array, candidates: Array) -> Array:
        """Return the nearest accepted candidate, or the first one where none is accepted."""
        xp = at.xp
        away = candidates - action
        distance = xp.where(self.accepts(at, candidates), dot(xp, away, away), float("inf"))
        first = xp.argmin(distance, axis=0)
        order = xp.reshape(xp.arange(candidates.shape[0]), (-1, *(1,) * (distance.ndim - 1)))
        return xp.sum(xp.where((order == first)[..., None], candidates, 0.0), axis=0)

    def _towards(self, at: Situation, action: Array, inside: Array) -> Array:
        """Move an accepted point towards the action for as long as it stays accepted, halving the way."""
        xp = at.xp
        outside = xp.broadcast_to(action, inside.shape)
        for _ in range(HALVINGS):
            middle = _rounded(at, 0.5 * (inside + outside))
            is_inside = self.accepts(at, middle)[..., None]
            inside, outside = xp.where(is_inside, middle, inside), xp.where(is_inside, outside, middle)
        return inside

    def _ask(self, observation: Any, action: Any) -> Any:
        """Call the function for a batch on the host, always with float64 numbers."""
        action = _read_only(action)
        observation = None if observation is None else self._shown(observation)
        lead = np.broadcast_shapes(action.shape[:-1], () if observation is None else observation.shape[:-1])
        actions = np.broadcast_to(action, (*lead, action.shape[-1]))
        if self.is_batched:
            return _checked(np.asarray(self.function(observation, actions)), lead, self._name())
        answers = np.empty(lead, dtype=np.bool_)
        for place in np.ndindex(*lead):
            state = observation
            if observation is not None:
                state = np.broadcast_to(observation, (*lead, observation.shape[-1]))[place]
            answers[place] = bool(
                _checked(np.asarray(self.function(state, actions[place])), (), self._name())
            )
        return answers

    def _shown(self, observation: Any) -> Any:
        """Return the entries that the function is given."""
        size = self.observation_size
        if size is not None and np.shape(observation)[-1] < size:
            raise InvalidInputError(
                f"{self._name()} is given {size} entries of the observation, but this one has only "
                f"{np.shape(observation)[-1]}. Pass the whole observation."
            )
        return _read_only(observation)[..., :size]

    def _is_member_in_jax(self, at: Situation, action: Array) -> Array:
        """Call the function on the host from wherever JAX computes."""
        import jax

        given = (action,) if at.observation is None else (action, at.observation)
        lead = np.broadcast_shapes(*(values.shape[:-1] for values in given))

        @jax.custom_jvp
        def answers(action: Array, observation: Array | None = None) -> Array:
            return jax.pure_callback(
                lambda a, o=None: self._ask(o, a),
                jax.ShapeDtypeStruct(lead, np.bool_),
                *((action,) if observation is None else (action, observation)),
                vmap_method="expand_dims",
            )

        @answers.defjvp
        def refuse(*_: Any) -> Any:
            raise ConstraintError(
                f"{self._name()} tells which actions are allowed, and has no gradient. Methods that differentiate "
                f"their projection or their violation cannot learn on it. Take ARAM, SAC, TD3 or FOCOPS, or write the "
                f"set as ib.Ball, ib.Polytope, ..."
            )

        return answers(*given)

    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


def asks_a_function(constraint: Constraint) -> bool:
    """Tell whether a set is known by a function alone, or has a member that is; such a set keeps no margin."""
    if isinstance(constraint, Oracle):
        return True
    values = (value for value in constraint.parameters().values() if isinstance(value, tuple | list))
    return any(
        isinstance(item, Constraint) and asks_a_function(item)
        for item in (*(item for value in values for item in value), *constraint.parameters().values())
    )


def _rounded(at: Situation, points: Array) -> Array:
    """Return points as float32 can hold them, so that no later rounding changes the function's answer."""
    return convert(convert(points, at.xp, at.xp.float32), at.xp, at.dtype)


def _read_only(values: Any) -> Any:
    """Return float64 numbers that a function cannot write into: they may be the caller's own array."""
    array = np.asarray(values, dtype=np.float64).view()
    array.flags.writeable = False
    return array


def _checked(answers: Any, lead: tuple[int, ...], name: str) -> Any:
    """Refuse answers that are not booleans of the expected shape.

    Nothing is repeated: one answer for a whole batch is that of a function which forgot an axis, and would allow
    every action where it allows one.
    """
    if answers.dtype != np.bool_:
        raise InvalidInputError(
            f"{name} returned {answers.dtype} values, but True or False is expected. Compare inside the function."
        )
    if answers.shape != lead:
        raise InvalidInputError(
            f"{name} returned an array of shape {answers.shape} for actions of leading shape {lead}. Return one "
            f"boolean per action: reduce along the last axis alone, as in (action > 0).all(axis=-1), or pass "
            f"is_batched=False."
        )
    return answers


def _path(function: Any) -> str | None:
    """Return where a function can be imported from, or None for what has no such place."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "<")
    if module is None or module == "__main__" or "<" in name or "." in name:
        return None
    # A function that took over another one's name, as a decorator's may, would be read back as that one.
    is_found = getattr(sys.modules.get(module), name, None) is function
    return f"{module}:{name}" if is_found else None


def _imported(path: str) -> Any:
    module, separator, name = path.partition(":")
    if not separator or not name:
        raise ConstraintError(f"Oracle: {path!r} names no function. Write it as 'package.module:function'.")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConstraintError(
            f"Oracle: {path!r} cannot be imported ({error}). Install the package or correct the path."
        ) from error
