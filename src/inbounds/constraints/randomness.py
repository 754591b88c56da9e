"""Random numbers from a numpy Generator or a JAX key, so that every sampler is written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from inbounds.constraints.arrays import Array, convert, is_jax, is_traced
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
