"""Comparing all pairs gives what a walk through the sorted arrivals gives, in both forms of the computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from inbounds.tasks import network_order
from inbounds.tasks.network_order import (
    Movement,
    earlier_arrivals,
    largest_earlier,
    started_before,
    summarise,
)

ENTRIES, LINKS = 160, 16
NO_LINK = LINKS - 1


@pytest.fixture(params=["loop", "at once"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a test with the loop that a CPU uses and with the large operations of other devices."""
    if request.param == "at once":

        def choose(*arguments: Any, cpu: Any, default: Any) -> Any:
            return default(*arguments)

        monkeypatch.setattr(network_order.jax.lax, "platform_dependent", choose)
    return request.param


class Arrivals:
    """Random arrivals; the places beyond their total belong to no link."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.total = int(rng.integers(0, ENTRIES + 1))
        self.is_there = np.arange(ENTRIES) < self.total
        self.link = np.where(self.is_there, rng.integers(0, NO_LINK, ENTRIES), NO_LINK)
        self.time = rng.random(ENTRIES).astype(np.float32)
        self.value = rng.exponential(size=ENTRIES).astype(np.float32)
        self.first = (self.link << 27).astype(np.int32)
        ticks = (self.time * 2**18).astype(np.int32)
        self.order = self.first | (ticks << 8) | np.arange(ENTRIES, dtype=np.int32)

    def before(self, j: int) -> np.ndarray:
        """Return which of the arrivals that are there came before j at its link."""
        return self.is_there & (self.link == self.link[j]) & (self.order < self.order[j])


@pytest.mark.parametrize("seed", range(4))
def test_earlier_arrivals_are_those_that_came_before_at_the_same_link(form: str, seed: int) -> None:
    arrivals = Arrivals(seed)
    earlier = earlier_arrivals(
        jnp.asarray(arrivals.order),
        jnp.asarray(arrivals.first),
        jnp.asarray(arrivals.value),
        jnp.int32(arrivals.total),
    )
    for j in range(arrivals.total):
        assert int(earlier.arrivals[j]) == arrivals.before(j).sum()
        assert float(earlier.work[j]) == pytest.approx(arrivals.value[arrivals.before(j)].sum(), rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_earlier_value_counts_from_a_least_one(form: str, seed: int) -> None:
    arrivals = Arrivals(seed)
    least = np.full(ENTRIES, 0.5, np.float32)
    largest = largest_earlier(
        jnp.asarray(arrivals.order),
        jnp.asarray(arrivals.first),
        jnp.asarray(arrivals.value),
        jnp.int32(arrivals.total),
        jnp.asarray(least),
    )
    for j in range(arrivals.total):
        assert float(largest[j]) == max([0.5, *arrivals.value[arrivals.before(j)]])


def test_services_that_have_begun_are_counted_at_the_arrivals_own_link(form: str) -> None:
    rng = np.random.default_rng(0)
    starting = np.sort(rng.random((40, LINKS)).astype(np.float32), axis=0)
    link, time = rng.integers(0, LINKS, ENTRIES), rng.random(ENTRIES).astype(np.float32)
    count = started_before(jnp.asarray(starting), jnp.asarray(link), jnp.asarray(time))
    expected = [(starting[:, own] <= now).sum() for own, now in zip(link, time, strict=True)]
    assert count.tolist() == expected


@pytest.mark.parametrize("seed", range(4))
def test_a_window_is_summed_by_link_and_by_group(form: str, seed: int) -> None:
    arrivals = Arrivals(seed)
    rng = np.random.default_rng(100 + seed)
    there = arrivals.is_there
    group = np.where(there, rng.integers(-1, 6, ENTRIES), -1)
    event = np.where(there, rng.random(ENTRIES), np.inf).astype(np.float32)
    movement = Movement(
        *(jnp.asarray(part) for part in (arrivals.link, arrivals.time, group, arrivals.value, event))
    )
    summary = jax.tree.map(np.asarray, summarise(movement, jnp.int32(arrivals.total), LINKS))
    for number in range(NO_LINK):
        at_link, in_group = there & (arrivals.link == number), there & (group == number)
        assert summary.arrived[number] == at_link.sum()
        assert summary.served[number] == max([-np.inf, *arrivals.time[at_link]])
        assert summary.returned[number] == in_group.sum()
        assert summary.round_trip[number] == pytest.approx(arrivals.value[in_group].sum(), rel=1e-5)
    assert summary.event.tolist() == [min([np.inf, *event[there]])] * LINKS
