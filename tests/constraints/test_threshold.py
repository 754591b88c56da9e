from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from inbounds.constraints import threshold
from inbounds.constraints.threshold import MANY_ENTRIES, Ramps, convex_reach, crossing


def random_ramps(rng: np.random.Generator, shape: tuple[int, ...]) -> Ramps:
    begin = rng.normal(size=shape)
    width = np.where(rng.random(shape) < 0.2, 0.0, rng.exponential(size=shape))
    rate = 10.0 ** rng.uniform(-6, 0, size=shape)
    return Ramps(begin + rate * rng.normal(size=shape), rate, begin, begin - width)


def height(ramps: Ramps, moment: float) -> float:
    return float(np.sum(np.clip(ramps.intercept - ramps.rate * moment, ramps.end, ramps.begin)))


@pytest.mark.parametrize("entries", [1, 2, 6, MANY_ENTRIES, MANY_ENTRIES + 1, 200])
def test_the_sum_meets_the_target_where_a_root_finder_finds_it(entries: int) -> None:
    rng = np.random.default_rng(entries)
    batch = random_ramps(rng, (30, entries))
    bottoms, tops = np.sum(batch.end, axis=-1), np.sum(batch.begin, axis=-1)
    targets = bottoms + rng.random(30) * (tops - bottoms)
    moments = crossing(np, batch, targets)
    for i, (top, target) in enumerate(zip(tops, targets, strict=True)):
        ramps = Ramps(*(part[i] for part in batch))
        alone = crossing(np, ramps, np.asarray(target))
        for moment in (alone, moments[i]):
            assert height(ramps, float(moment)) == pytest.approx(target, abs=1e-11 * (1 + abs(top)))
        if top > target + 1e-9 and np.all(ramps.begin > ramps.end):
            first = float(np.min((ramps.intercept - ramps.begin) / ramps.rate))
            last = float(np.max((ramps.intercept - ramps.end) / ramps.rate))
            root = optimize.brentq(_above, first, last, args=(ramps, target), xtol=1e-14, rtol=1e-14)
            assert height(ramps, root) == pytest.approx(
                height(ramps, float(alone)), abs=1e-9 * (1 + abs(top))
            )


def _above(moment: float, ramps: Ramps, target: float) -> float:
    return height(ramps, moment) - target


def test_a_target_out_of_reach_stops_everything_at_its_end() -> None:
    ramps = random_ramps(np.random.default_rng(0), (5, 7))
    moment = crossing(np, ramps, np.full(5, -1e3))[:, None]
    alone = Ramps(*(part[0] for part in ramps))
    assert height(alone, float(crossing(np, alone, np.asarray(-1e3)))) == np.sum(alone.end)
    np.testing.assert_array_equal(
        np.clip(ramps.intercept - ramps.rate * moment, ramps.end, ramps.begin), ramps.end
    )


@pytest.mark.parametrize("entries", [7, MANY_ENTRIES + 1])
def test_a_target_that_is_met_from_the_beginning_moves_nothing(entries: int) -> None:
    ramps = random_ramps(np.random.default_rng(0), (5, entries))
    alone = Ramps(*(part[0] for part in ramps))
    assert crossing(np, alone, np.asarray(1e3)) == -np.inf
    moment = crossing(np, ramps, np.full(5, 1e3))[:, None]
    np.testing.assert_array_equal(
        np.clip(ramps.intercept - ramps.rate * moment, ramps.end, ramps.begin), ramps.begin
    )


@pytest.mark.parametrize("entries", [5, MANY_ENTRIES + 1])
def test_jax_and_numpy_find_the_same_moment(entries: int) -> None:
    rng = np.random.default_rng(3)
    ramps = random_ramps(rng, (40, entries))._replace(rate=np.ones((40, entries)))
    target = np.sum(0.5 * (np.fmin(ramps.begin, ramps.intercept) + ramps.end), axis=-1)
    compiled = jax.jit(lambda ramps, target: crossing(jnp, ramps, target))
    found = compiled(Ramps(*map(jnp.asarray, ramps)), jnp.asarray(target))
    np.testing.assert_allclose(found, crossing(np, ramps, target), rtol=1e-5, atol=1e-5 * entries)


def test_the_derivative_is_that_of_the_moving_entries() -> None:
    # Two of three entries move at the solution: t = (4 + 3 + 1 - target) / 2.
    ramps = Ramps(
        *(jnp.array(part) for part in ([4.0, 3.0, 9.0], [1.0, 1.0, 1.0], [4.0, 3.0, 1.0], [0.0] * 3))
    )
    moment, slopes = jax.value_and_grad(lambda ramps: crossing(jnp, ramps, jnp.array(5.0)))(ramps)
    assert moment == pytest.approx(1.5)
    np.testing.assert_allclose(slopes.intercept, [0.5, 0.5, 0.0])
    np.testing.assert_allclose(slopes.begin, [0.0, 0.0, 0.5])


def test_the_reach_ends_where_the_sum_meets_the_bound() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        kinks, after = rng.normal(size=6) * 3.0, rng.exponential(size=6)
        before = -rng.exponential(size=6) * (rng.random(6) < 0.7)

        def level(t: float, kinks: Any = kinks, before: Any = before, after: Any = after) -> float:
            return float(np.sum(np.maximum(before * (t - kinks), after * (t - kinks))))

        bound = level(0.0) + rng.exponential()
        reach = float(convex_reach(np, np.asarray(0.0), kinks, before, after, np.asarray(bound)))
        assert level(reach) == pytest.approx(bound)
        assert level(reach + 1e-3) > bound


def test_the_reach_is_infinite_where_nothing_rises() -> None:
    falling = np.array([-1.0, -2.0])
    assert convex_reach(np, np.asarray(0.0), np.ones(2), falling, 0.0 * falling, np.asarray(5.0)) == np.inf


def test_the_reach_among_many_entries_is_that_of_comparing_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    size = (20, MANY_ENTRIES + 1)
    kinks = np.where(rng.random(size) < 0.1, 0.0, rng.normal(size=size) * 10.0 ** rng.uniform(-3, 3, size))
    rise = np.where(rng.random(size) < 0.1, 0.0, 10.0 ** rng.uniform(-3, 3, size))
    start = np.sum(np.maximum(rise * kinks, -rise * kinks), axis=-1)
    bound = start + 10.0 ** rng.uniform(-2, 4, 20)
    halved = convex_reach(np, np.zeros(20), kinks, -rise, rise, bound)
    monkeypatch.setattr("inbounds.constraints.threshold.MANY_ENTRIES", 1000)
    np.testing.assert_array_equal(halved, convex_reach(np, np.zeros(20), kinks, -rise, rise, bound))


def test_halving_ends_where_no_moment_is_left_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ramps = random_ramps(rng, (200,))
    starts, stops = ((ramps.intercept - part) / ramps.rate for part in (ramps.begin, ramps.end))
    moments, real, sums = np.concatenate([starts, stops]), threshold.total, []
    monkeypatch.setattr(threshold, "total", lambda xp, values: sums.append(1) or real(xp, values))
    bottom, top = (float(np.sum(part)) for part in (ramps.end, ramps.begin))
    for target in (bottom - 1.0, bottom, 0.5 * (bottom + top), top, top + 1.0):
        last, following = threshold._bracket_by_halving(np, ramps, moments, np.asarray(target))
        heights = np.array([height(ramps, moment) for moment in moments])
        if bottom < target < top:
            assert (
                last[0] == moments[heights >= target].max()
                and following[0] == moments[heights < target].min()
            )
            assert len(sums) < 60
        sums.clear()
