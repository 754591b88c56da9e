"""How much better than never moving can bike sharing be played? Exact for three zones, bounded for five.

Moving bikes only changes the allocation in which an epoch begins, so an epoch is: choose an allocation, pay 2
per bike moved, and let riders turn it into the next one. Their demand is i.i.d. and its law is known.

- Three zones, exact. All 400^3 outcomes of an epoch are counted for each of the 496 allocations; backward
  induction gives the optimal return of an episode and that of never moving, up to the rounding of float64.
- Five zones, exact. The expected numbers of trips lost and of bikes parked elsewhere follow from laws in one
  dimension, so the best epoch of all 312,676 allocations is known. Were moving free, an episode could reach
  100 times that, and no policy can reach more.
- Five zones, estimated. A second bound lets a clairvoyant see the whole demand of an episode and charges for
  it: the deviation of a potential of the next allocation from its exact expectation, zero on average for
  every policy that cannot see the future. The optimum of each sampled episode over all allocations is found
  exactly; the mean over episodes bounds every policy, up to the error of the sample.

The second bound is computed for three zones too, where the answer is known, as a check of the method.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.bike_sharing_laws import (
    FREQUENCIES,
    Allocations,
    EpochLaws,
    Model,
    allocations_of,
    epoch_laws,
    exact_model,
    expected_epoch,
    where_bikes_go,
)
from benchmarks.estimates import with_error
from benchmarks.provenance import save_result
from inbounds.tasks.bike_sharing import (
    HORIZON,
    LEAST_DEMAND,
    MOST_DEMAND,
    SYSTEMS,
    BikeSharing,
    BikeSharingSystem,
    allocation_slice,
    park,
    trips_served,
)


@partial(jax.jit, static_argnums=(1, 2))
def parked(arrived: jax.Array, capacity: int, nearest: tuple[tuple[int, ...], ...]) -> jax.Array:
    return park(arrived, capacity, nearest).allocation


class Played(NamedTuple):
    """Episodes whose demand depends on their number alone, so that two policies can be compared in pairs."""

    returns: np.ndarray
    allocations: np.ndarray
    """What stood in each zone when a decision was due, (episode, epoch, zone)."""


def play(environment: BikeSharing, policy: Callable[[jax.Array], jax.Array], episodes: int) -> Played:
    def episode(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def epoch(carried: Any, _: None) -> Any:
            state, observation = carried
            step = environment.step(state, policy(observation), key)
            return (step.state, step.observation), (step.reward, state.allocation.astype(jnp.int8))

        rewards, allocations = jax.lax.scan(epoch, environment.reset(key), None, length=HORIZON)[1]
        return rewards.sum(), allocations

    keys = jax.random.split(jax.random.key(20), episodes)
    returns, allocations = jax.jit(lambda k: jax.lax.map(episode, k, batch_size=2048))(keys)
    return Played(np.asarray(returns, np.float64), np.asarray(allocations, np.int32))


def never_move(zones: int) -> Callable[[jax.Array], jax.Array]:
    return lambda observation: observation[allocation_slice(zones)]


class Induction(NamedTuple):
    """What backward induction finds for an episode, from every allocation."""

    optimal: np.ndarray
    never_moving: np.ndarray
    policy: np.ndarray
    """Index of the allocation to choose, by epoch and by present allocation."""
    largest_gain_per_bike: float
    """The most that one moved bike can gain, in any epoch and allocation, before its cost of 2."""


def backward_induction(model: Model, states: Allocations) -> Induction:
    cost = np.abs(states.points[:, None] - states.points[None]).sum(axis=-1)
    optimal, never, policy, gain = np.zeros(len(cost)), np.zeros(len(cost)), [], 0.0
    for _ in range(HORIZON):
        onward = model.reward + model.transition @ optimal
        values = onward[None] - cost
        policy.append(values.argmax(axis=1))
        optimal = values.max(axis=1)
        never = model.reward + model.transition @ never
        gain = max(gain, float((onward[None] - onward[:, None])[cost == 2].max()))
    return Induction(optimal, never, np.array(policy[::-1]), gain)


def play_policy(system: BikeSharingSystem, states: Allocations, policy: np.ndarray, episodes: int) -> Played:
    """Play a table of decisions for three zones in the simulator."""
    points, index, table = jnp.asarray(states.points), jnp.asarray(states.index), jnp.asarray(policy)

    def choose(observation: jax.Array) -> jax.Array:
        now = observation[allocation_slice(system.zones)].astype(jnp.int32)
        epoch = observation[-1].astype(jnp.int32)
        return points[table[epoch, index[now[0] + 41 * now[1]]]]

    return play(BikeSharing(system), choose, episodes)


def fitted_potential(system: BikeSharingSystem, states: Allocations, rng: np.random.Generator) -> np.ndarray:
    """Return functions whose sum over zones is near the value of an allocation when bikes are never moved.

    Any functions give a valid bound; good ones a tight one. Values come from playing on from many allocations
    with the same demand; they are fitted by smooth functions of each zone's bikes.
    """
    zones, most, epochs, paths, wanted = system.zones, system.capacity, 8, 192, 1500
    visited = play(BikeSharing(system), never_move(zones), 300).allocations.reshape(-1, zones)
    chosen = np.concatenate([
        visited[rng.integers(len(visited), size=wanted)],
        states.points[rng.integers(len(states.points), size=wanted)],
    ])  # fmt: skip
    demand = rng.integers(LEAST_DEMAND, MOST_DEMAND + 1, (paths, epochs, zones, zones)).astype(np.int32)
    demand[..., range(zones), range(zones)] = 0
    nearest = system.nearest_zones()

    @jax.jit
    def value(start: jax.Array) -> jax.Array:
        def path(flows: jax.Array) -> jax.Array:
            def epoch(now: jax.Array, flow: jax.Array) -> tuple[jax.Array, jax.Array]:
                trips = trips_served(now, flow)
                after = park(now - trips.sum(axis=1) + trips.sum(axis=0), most, nearest)
                return after.allocation, -(flow - trips).sum() - after.overflow

            return jax.lax.scan(epoch, start, flows)[1].sum()

        return jax.vmap(path)(demand).mean()

    values = np.asarray(jax.lax.map(value, jnp.asarray(chosen, jnp.int32), batch_size=64), np.float64)
    design = np.zeros((len(chosen), zones, most + 1))
    for zone in range(zones):
        design[np.arange(len(chosen)), zone, chosen[:, zone]] = 1
    bends = np.kron(np.eye(zones), np.diff(np.eye(most + 1), 2, axis=0)) * 30
    small = 1e-2 * np.eye(zones * (most + 1))
    system_matrix = np.concatenate([design.reshape(len(chosen), -1), bends, small])
    right = np.concatenate([values - values.mean(), np.zeros(len(bends) + len(small))])
    fitted = np.linalg.lstsq(system_matrix, right, rcond=None)[0].reshape(zones, most + 1)
    # A bike above the capacity ends in another zone, where it is worth what one more bike is worth there.
    slope = np.gradient(fitted, axis=1)[:, most * 3 // 4].mean()
    beyond = fitted[:, -1:] + slope * np.arange(1, FREQUENCIES - most)
    return np.concatenate([fitted, beyond], axis=1)


def clairvoyant_gaps(
    system: BikeSharingSystem, states: Allocations, laws: EpochLaws, episodes: int, seed: int
) -> dict[str, object]:
    """Return by how much the charged clairvoyant beats never moving on sampled demand.

    In each epoch the clairvoyant is paid the exact expectation of -lost - overflow + potential for its
    allocation and hands back the potential of where its bikes really end; a policy that cannot see the future
    is paid on average what it earns.
    """
    rng = np.random.default_rng(seed)
    potential = fitted_potential(system, states, rng)
    zones = system.zones
    expected = expected_epoch(laws, states.points, potential, system.capacity)
    last_epoch = expected_epoch(laws, states.points, np.zeros_like(potential), system.capacity)
    neighbours = one_bike_moves(states, system.capacity)
    start = states.find(np.full((1, zones), system.bikes // zones))[0]
    every_number = np.arange(41)[:, None]
    optima, nevers, largest = [], [], 0.0
    for _ in range(episodes):
        demand = rng.integers(LEAST_DEMAND, MOST_DEMAND + 1, (HORIZON, zones, zones)).astype(np.int32)
        demand[:, range(zones), range(zones)] = 0
        optimal, never = np.zeros(len(states.points)), np.zeros(len(states.points))
        for epoch in reversed(range(HORIZON)):
            went = where_bikes_go(every_number, np.broadcast_to(demand[epoch], (41, zones, zones)))
            ended = sum(went[states.points[:, zone], zone] for zone in range(zones))
            target = states.find(np.asarray(parked(ended, system.capacity, system.nearest_zones())))
            if epoch == HORIZON - 1:
                paid = last_epoch
            else:
                paid = expected - sum(potential[zone, ended[:, zone]] for zone in range(zones))
            onward = paid + optimal[target]
            never = paid + never[target]
            optimal = onward
            while True:  # bikes are moved one by one, each for 2, as long as that gains anything anywhere
                padded = np.append(optimal, -np.inf)
                better = padded[neighbours].max(axis=1) - 2.0
                largest = max(largest, float((better - onward).max() + 2.0))
                if not np.any(better > optimal + 1e-9):
                    break
                optimal = np.maximum(optimal, better)
        optima.append(optimal[start])
        nevers.append(never[start])
    gaps = np.array(optima) - np.array(nevers)
    return {
        "episodes": episodes,
        "clairvoyant": with_error(np.array(optima)),
        "never_moving_charged_alike": with_error(np.array(nevers)),
        "gap": with_error(gaps),
        "largest_gap": float(gaps.max()),
        "largest_gain_of_one_moved_bike_before_its_cost_of_2": largest,
    }


def one_bike_moves(states: Allocations, capacity: int) -> np.ndarray:
    """Return the allocations that one moved bike makes of each; the number of all where there is none."""
    columns = []
    for origin, destination in itertools.permutations(range(states.points.shape[1]), 2):
        moved = states.points.copy()
        moved[:, origin] -= 1
        moved[:, destination] += 1
        fits = (moved[:, origin] >= 0) & (moved[:, destination] <= capacity)
        column = np.full(len(moved), len(moved), np.int32)
        column[fits] = states.find(moved[fits])
        columns.append(column)
    return np.stack(columns, axis=1)


def study(system: BikeSharingSystem, episodes: int, clairvoyant_episodes: int) -> dict[str, Any]:
    """Return everything that is known about one system."""
    states, laws = allocations_of(system), epoch_laws(system)
    one_epoch = expected_epoch(laws, states.points, np.zeros((system.zones, FREQUENCIES)), system.capacity)
    exact: dict[str, Any] = {
        "allocations": len(states.points),
        "return_if_moving_were_free": HORIZON * float(one_epoch.max()),
        "best_allocation_if_moving_were_free": states.points[one_epoch.argmax()].tolist(),
    }
    never = play(BikeSharing(system), never_move(system.zones), episodes)
    # The expected reward of each allocation met varies far less than the reward itself, with the same mean.
    met = states.find(never.allocations.reshape(-1, system.zones))
    expected_returns = one_epoch[met].reshape(episodes, -1)
    estimated: dict[str, Any] = {
        "episodes": episodes,
        "never_moving": with_error(expected_returns.sum(axis=1)),
        "never_moving_as_simulated": with_error(never.returns),
    }
    if system.zones == 3:
        model = exact_model(system, states)
        assert np.abs(model.reward - one_epoch).max() < 1e-9  # two ways to the same expectation
        induction = backward_induction(model, states)
        start = states.find(np.full((1, 3), system.bikes // 3))[0]
        moves = induction.policy != np.arange(len(states.points))
        exact |= {
            "optimal_return": induction.optimal[start],
            "never_moving_return": induction.never_moving[start],
            "gain_over_never_moving": induction.optimal[start] - induction.never_moving[start],
            "decisions": induction.policy.size,
            "decisions_in_which_the_optimal_policy_moves": int(moves.sum()),
            "largest_gain_of_one_moved_bike_before_its_cost_of_2": induction.largest_gain_per_bike,
        }
        optimal = play_policy(system, states, induction.policy, episodes)
        estimated["optimal_as_simulated"] = with_error(optimal.returns)
        estimated["gain_over_never_moving_as_simulated"] = with_error(optimal.returns - never.returns)
    estimated["charged_clairvoyant"] = clairvoyant_gaps(system, states, laws, clairvoyant_episodes, seed=1)
    return {"exact": exact, "estimated": estimated}


def main() -> None:
    parser = argparse.ArgumentParser(description="How much better than never moving can one be?")
    parser.add_argument("--episodes", type=int, default=20_000, help="episodes that are simulated")
    parser.add_argument("--clairvoyant-episodes", type=int, default=6, help="episodes solved with hindsight")
    chosen = parser.parse_args()
    results = {}
    for name, system in SYSTEMS.items():
        begun = time.perf_counter()
        results[name] = study(system, chosen.episodes, chosen.clairvoyant_episodes)
        results[name]["seconds"] = round(time.perf_counter() - begun, 1)
        print(name, json.dumps(results[name], indent=1))
    print("stored in", save_result("bike_sharing_bound", results))


if __name__ == "__main__":
    main()
