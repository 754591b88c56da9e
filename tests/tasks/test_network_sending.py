"""Who sends when: the law of the slots, and weighted round robin against a plain simulation of it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from inbounds.tasks.network_order import draw_gaps, plan_sending

MOST = 320
EMPTY = -1


def slot_by_slot(rates: np.ndarray) -> list[int]:
    """Return the flow of every slot, EMPTY where nothing is sent, until all credit is used."""
    credit, tags, slots = rates.astype(float).copy(), np.zeros(len(rates)), []
    has_skipped = False
    while (credit > 0).any():
        able = np.flatnonzero(credit > 0)
        flow = able[np.argmin(tags[able])]
        if credit[0] < 0 and tags[flow] > 0 and not has_skipped:
            has_skipped = True
            slots.append(EMPTY)
            continue
        credit[flow] -= 1
        tags[flow] += 1 / rates[flow]
        slots.append(int(flow))
    return slots


def planned(rates: np.ndarray) -> list[int]:
    plan = jax.jit(plan_sending, static_argnums=1)(jnp.asarray(rates), MOST)
    total = int(plan.total)
    slots = [EMPTY] * (int(plan.slot[:total].max()) + 1)
    for flow, slot in zip(plan.flow[:total].tolist(), plan.slot[:total].tolist(), strict=True):
        assert slots[slot] == EMPTY, "two packets share a slot"
        slots[slot] = flow
    return slots


def rates_of(flows: int, seed: int, *, is_integer: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rates = rng.uniform(0, 300 / flows, flows)
    return (np.floor(rates) if is_integer else rates).astype(np.float32) + np.float32(5e-5)


@pytest.mark.parametrize("flows", [9, 20])
@pytest.mark.parametrize("seed", range(12))
def test_packets_go_out_in_the_order_of_weighted_round_robin(flows: int, seed: int) -> None:
    rates = rates_of(flows, seed, is_integer=False)
    assert planned(rates) == slot_by_slot(rates)


@pytest.mark.parametrize("value", [5e-5, 0.3, 1.00005, 7.5, 10.00005])
@pytest.mark.parametrize("flows", [9, 20])
def test_equal_rates_take_turns_in_the_order_of_the_flows(flows: int, value: float) -> None:
    rates = np.full(flows, value, np.float32)
    assert planned(rates) == slot_by_slot(rates)
    assert planned(rates)[:flows] == list(range(flows))


@pytest.mark.parametrize("seed", range(8))
def test_rates_whose_tags_nearly_agree_still_give_every_packet_a_slot_of_its_own(seed: int) -> None:
    rates = rates_of(20, seed, is_integer=True)
    ours, plain = planned(rates), slot_by_slot(rates)
    assert sorted(ours) == sorted(plain)
    # Where float32 cannot tell two tags apart, packets change places within a few slots.
    assert sum(one != other for one, other in zip(ours, plain, strict=True)) <= 6


def test_one_slot_stays_empty_once_the_first_flow_has_sent_everything() -> None:
    rates = np.array([2.5, 8.5, 4.5], np.float32)
    slots = planned(rates)
    assert slots.count(EMPTY) == 1
    last_of_first_flow = max(slot for slot, flow in enumerate(slots) if flow == 0)
    assert slots.index(EMPTY) == last_of_first_flow + 1


def test_each_flow_sends_its_rate_rounded_up() -> None:
    rates = rates_of(9, 3, is_integer=False)
    assert [planned(rates).count(flow) for flow in range(9)] == np.ceil(rates).astype(int).tolist()


def test_more_packets_than_the_buffer_holds_are_told() -> None:
    plan = plan_sending(jnp.full(20, 50.0), MOST)
    assert int(plan.total) == 1000 > MOST


@pytest.mark.parametrize("rate", [500, 1000])
def test_gaps_follow_one_over_a_poisson_count_plus_one(rate: int) -> None:
    counts = np.rint(1.0 / np.asarray(draw_gaps(jax.random.key(rate), rate, 200_000), np.float64) - 1.0)
    # Chi-square over counts pooled to expected frequencies of 50 or more; a wrong law fails by far.
    edges = scipy.stats.poisson.ppf(np.linspace(0.0005, 0.9995, 60), rate)
    bins = np.concatenate([[-np.inf], np.unique(edges), [np.inf]])
    expected = np.diff(scipy.stats.poisson.cdf(bins, rate)) * counts.size
    found = np.histogram(counts, np.concatenate([[-np.inf], np.unique(edges) + 0.5, [np.inf]]))[0]
    assert scipy.stats.chisquare(found, expected * found.sum() / expected.sum()).pvalue > 1e-4
