"""Random numbers from a numpy Generator or a JAX key, so that every sampler is written once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from inbounds.constraints.arrays import Array, convert, is_jax, is_traced, total
from inbounds.constraints.situation import Situation
from inbounds.errors import InvalidInputError

State = TypeVar("State")


class Randomness:
    """A stream of random numbers in the array library and number type of a situation.

    A numpy Generator is consumed, as anywhere else; a JAX key is split for every array that is drawn.
    """

    def __init__(self, rng: Any, at: Situation) -> None:
        """Accept a numpy Generator or a JAX key."""
        if not isinstance(rng, np.random.Generator) and not is_jax(rng):
            raise InvalidInputError(
                f"rng is {rng!r}, but a numpy Generator or a JAX key is expected. "
                f"Pass numpy.random.default_rng(seed) or jax.random.key(seed)."
            )
        self._source = rng
        self._at = at

    def uniform(self, shape: tuple[int, ...]) -> Array:
        """Draw numbers between 0 (included) and 1."""
        if is_jax(self._source):
            import jax

            return jax.random.uniform(self._next_key(), shape, dtype=self._at.dtype)
        return self._converted(self._source.random(shape))

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Draw standard normal numbers."""
        if is_jax(self._source):
            import jax

            return jax.random.normal(self._next_key(), shape, dtype=self._at.dtype)
        return self._converted(self._source.standard_normal(shape))

    def exponential(self, shape: tuple[int, ...]) -> Array:
        """Draw exponential numbers of mean 1."""
        if is_jax(self._source):
            import jax

            return jax.random.exponential(self._next_key(), shape, dtype=self._at.dtype)
        return self._converted(self._source.standard_exponential(shape))

    def signs(self, shape: tuple[int, ...]) -> Array:
        """Draw -1 or 1 with equal probability."""
        return self._at.xp.where(self.uniform(shape) < 0.5, -1.0, self._ones(shape))

    def repeat(self, count: int, function: Callable[[Randomness, State], State], state: State) -> State:
        """Apply a function that draws numbers a fixed number of times; compiled by JAX it is one loop."""
        if not is_traced(self._source):
            for _ in range(count):
                state = function(self, state)
            return state
        import jax

        def step(_: Any, carried: tuple[Any, State]) -> tuple[Any, State]:
            key, current = carried
            key, here = jax.random.split(key)
            return key, function(Randomness(here, self._at), current)

        final: State = jax.lax.fori_loop(0, count, step, (self._next_key(), state))[1]
        return final

    def repeat_while(
        self,
        count: int,
        is_unfinished: Callable[[State], Array],
        function: Callable[[Randomness, State], State],
        state: State,
    ) -> State:
        """Apply a function that draws numbers until a state is finished, at most a number of times."""
        if not is_traced(self._source):
            for _ in range(count):
                if not bool(is_unfinished(state)):
                    break
                state = function(self, state)
            return state
        import jax

        def is_going_on(carried: tuple[Any, Any, State]) -> Any:
            index, _, current = carried
            return (index < count) & is_unfinished(current)

        def step(carried: tuple[Any, Any, State]) -> tuple[Any, Any, State]:
            index, key, current = carried
            key, here = jax.random.split(key)
            return index + 1, key, function(Randomness(here, self._at), current)

        final: State = jax.lax.while_loop(is_going_on, step, (0, self._next_key(), state))[2]
        return final

    def _next_key(self) -> Any:
        import jax

        self._source, here = jax.random.split(self._source)
        return here

    def _ones(self, shape: tuple[int, ...]) -> Array:
        return self._at.xp.ones(shape, dtype=self._at.dtype)

    def _converted(self, numbers: np.ndarray[Any, Any]) -> Array:
        return convert(numbers, self._at.xp, self._at.dtype, self._at.device)


class Power(NamedTuple):
    """Draws of a length whose d-th power is uniform, and the logarithm of what that power varies by."""

    draw: Callable[[Randomness, tuple[int, ...]], Array]
    log_power: Array


def power_between(at: Situation, dimension: int, lower: Array, upper: Array) -> Power:
    """Return draws of a length between two, as that of points which are uniform in d dimensions."""
    xp = at.xp
    upper = xp.maximum(upper, 0.0)
    has_size = upper > 0
    ratio = xp.maximum(lower, 0.0) / xp.where(has_size, upper, 1.0)
    left = xp.maximum(1.0 - ratio**dimension, float(np.finfo(np.float32).tiny))
    log_power = dimension * xp.log(xp.where(has_size, upper, 1.0)) + xp.log(left)

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Array:
        # log(1 - u (1 - r^d)) / d keeps its digits where both ends are near and r is nearly 1.
        return upper * xp.exp(xp.log1p(-randomness.uniform(shape) * left) / dimension)

    return Power(draw, xp.where(has_size, log_power, -float("inf")))


def unit_vectors(at: Situation, randomness: Randomness, shape: tuple[int, ...]) -> Array:
    """Draw directions uniformly."""
    heading = randomness.normal(shape)
    length = at.xp.sqrt(total(at.xp, heading * heading))
    return heading / at.xp.where(length > 0, length, 1.0)[..., None]


def points_of_unit_ball(at: Situation, randomness: Randomness, shape: tuple[int, ...]) -> Array:
    """Draw uniformly from the unit ball: a direction, and a radius whose d-th power is uniform."""
    xp, dimension = at.xp, shape[-1]
    heading = randomness.normal(shape)
    length = xp.sqrt(total(xp, heading * heading))
    length = xp.where(length > 0, length, 1.0)
    radius = randomness.uniform(shape[:-1]) ** (1.0 / dimension)
    return heading * (radius / length)[..., None]


def points_of_corner(
    at: Situation, dimension: int, lower: Array, upper: Array
) -> tuple[Callable[[Randomness, tuple[int, ...]], Array], Array]:
    """Return a draw from {x >= 0, lower <= sum_i x_i <= upper}, and the logarithm of its volume.

    The d-th power of the sum is uniform between those of its bounds, and the shares are exponentials divided
    by their sum.
    """
    sums = power_between(at, dimension, lower, upper)

    def draw(randomness: Randomness, shape: tuple[int, ...]) -> Array:
        amount, spacings = sums.draw(randomness, shape), randomness.exponential((*shape, dimension))
        return spacings * (amount / total(at.xp, spacings))[..., None]

    return draw, sums.log_power - math.lgamma(dimension + 1.0)


def log_unit_ball(dimension: int) -> float:
    """Return the logarithm of the volume of the unit ball."""
    return 0.5 * dimension * math.log(math.pi) - math.lgamma(0.5 * dimension + 1.0)


def log_factorial(at: Situation, count: Array, largest: int) -> Array:
    """Return the logarithm of the factorial of whole numbers up to the largest one."""
    xp = at.xp
    result = xp.zeros_like(count)
    for number in range(2, largest + 1):
        result = result + xp.where(count >= number, math.log(number), 0.0 * count)
    return result
