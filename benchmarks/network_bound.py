"""How much better than constant rates can the networks be played? A relaxation from above, seen queues from below.

From above: every interval finds an empty network, and all packets that it sends are acknowledged within it and count
in it. What one interval leaves to the next, and with it every reason to look at the state, is gone, so that the best
policy sends the same rates in each interval. Their expected reward,

    max_u E[ sum_s ln(N_s(u) - 1) - 1.5 ln D_s(u) ],

with N_s the packets of sender s and D_s their mean round-trip time, is searched for as `constant` is, more than once,
and the best that was found is measured anew. It is an estimate and not a proof that no policy earns more: a search may
miss the maximum, work that an earlier interval has left may in principle order packets so that others wait less, and
acknowledgements that come late may even out throughput. What it leaves out otherwise costs reward: waiting behind what
is left of earlier bursts, intervals that last a little longer than a second, and the short first one.

From below: a policy that sees all queues, which no observation holds, sends rates between those that learners begin
with and those of the relaxation, and less along a path the more seconds of work wait on it. Which rates, and how much
less, is chosen on other episodes than those reported; what seeing brings is the difference to the best that does not.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.estimates import with_error
from benchmarks.provenance import save_result
from inbounds.evaluation.baselines import best_constant_action
from inbounds.tasks.environment import CompiledStep
from inbounds.tasks.network import compiled_network, network_task
from inbounds.tasks.network_layout import LAYOUTS, SLOTS_PER_SECOND
from inbounds.tasks.network_simulator import HORIZON, NetworkEnvironment, NetworkState, interval_reward
from inbounds.tasks.network_window import LINKS, WINDOW, empty_queues

WINDOWS = 60
"""Three seconds: bursts of 50 packets on the longest path were acknowledged after two and a half at most."""
SEARCHES = (2, 3, 4)
"""Seeds of the searches for the best rates of the relaxation."""
BOLDNESS = (0.0, 0.1, 0.2, 0.4)
"""How far rates lie from where learners begin towards those of the relaxation."""
CAUTION = (0.0, 0.25, 0.5, 1.0, 2.0)
"""By which share a path's rate is lowered per second of work that waits on its fullest trunk; 0 is constant rates."""


class FreshNetwork:
    """A network that forgets: every interval begins empty and waits for all of its own packets."""

    def __init__(self, network: NetworkEnvironment) -> None:
        self.network = network
        self.observation_size, self.action_size = network.observation_size, network.action_size
        self.horizon = network.horizon

    def reset(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        del key
        return jnp.zeros((), jnp.int32), jnp.zeros(self.observation_size)

    def step(self, state: jax.Array, action: jax.Array, key: jax.Array) -> CompiledStep:
        layout = self.network.layout
        rates = action.astype(jnp.float32) + jnp.float32(layout.rate_offset)
        seconds = jnp.float32(WINDOWS * WINDOW)
        interval = self.network.interval(
            empty_queues(), jnp.zeros(()), rates, seconds, key, WINDOWS, SLOTS_PER_SECOND, can_fill=False
        )
        sent = jnp.ceil(rates).reshape(layout.senders, layout.paths).sum(axis=1)
        count = interval.tally.returned[: layout.senders]
        round_trip = interval.tally.round_trip[: layout.senders] / jnp.maximum(count, 1.0)
        reward = interval_reward(count - 1.0, round_trip, jnp.zeros(layout.paths))
        return CompiledStep(
            state=state + 1,
            observation=jnp.zeros(self.observation_size),
            # Slots end before three seconds do, which is the one overflow that is expected.
            reward=jnp.where(jnp.all(count == sent) & (interval.tally.overflow == 1), reward, jnp.nan),
            terminated=jnp.zeros((), bool),
            truncated=state + 1 >= self.horizon,
        )


@partial(jax.jit, static_argnums=(0, 2))
def fresh_rewards(network: NetworkEnvironment, rates: jax.Array, count: int, seed: jax.Array) -> jax.Array:
    fresh = FreshNetwork(network)
    keys = jax.random.split(jax.random.key(seed), count)
    state, _ = fresh.reset(keys[0])
    return jax.lax.map(lambda key: fresh.step(state, rates, key).reward, keys, batch_size=100)


@partial(jax.jit, static_argnums=(0, 3))
def returns(
    network: NetworkEnvironment, rates: jax.Array, caution: jax.Array, episodes: int, seed: jax.Array
) -> jax.Array:
    """Return those of episodes in which paths are eased by the work that waits on them."""
    crosses = jnp.asarray(network.layout.incidence().T, bool)

    def play(key: jax.Array) -> jax.Array:
        first, later = jax.random.split(key)
        state, _ = network.reset(first)

        def advance(state: NetworkState, key: jax.Array) -> tuple[NetworkState, jax.Array]:
            waiting = jnp.maximum(state.queues.busy_until[:LINKS], 0.0)
            fullest = jnp.max(jnp.where(crosses, waiting, 0.0), axis=1)
            step = network.step(state, rates * jnp.maximum(1.0 - caution * fullest, 0.0), key)
            return step.state, step.reward

        _, rewards = jax.lax.scan(advance, state, jax.random.split(later, HORIZON))
        return rewards.sum()

    return jax.vmap(play)(jax.random.split(jax.random.key(seed), episodes))


def study(name: str, search_steps: int, intervals: int, episodes: int) -> dict[str, Any]:
    """Return what constant rates earn, what the relaxation does, and what seeing the queues brings."""
    network, task = compiled_network(name), network_task(name)
    good: NDArray[np.float32] = np.asarray(LAYOUTS[name].good_rates, np.float32)
    relaxed = dataclasses.replace(task, compiled=lambda: FreshNetwork(network))
    found = [best_constant_action(relaxed, steps=search_steps, seed=seed) for seed in SEARCHES]
    measured = [np.asarray(fresh_rewards(network, np.float32(one.action), intervals, 3)) for one in found]
    best = np.float32(found[int(np.argmax([rewards.mean() for rewards in measured]))].action)

    def played(boldness: float, caution: float, seed: int) -> NDArray[np.float32]:
        return np.asarray(returns(network, good + boldness * (best - good), caution, episodes, seed))

    tried = {pair: float(played(*pair, 6).mean()) for pair in itertools.product(BOLDNESS, CAUTION)}
    seeing = max(tried, key=lambda pair: tried[pair])
    blind = max((pair for pair in tried if pair[1] == 0.0), key=lambda pair: tried[pair])
    constant, sighted, unsighted = (played(*pair, 7) for pair in ((0.0, 0.0), seeing, blind))
    return {
        "best rates of the relaxation": [round(float(rate), 2) for rate in best],
        "search_steps": found[0].steps,
        "intervals": intervals,
        "relaxed": {
            "good rates": with_error(HORIZON * np.asarray(fresh_rewards(network, good, intervals, 3))),
            "best rates of each search": [with_error(HORIZON * rewards) for rewards in measured],
            # The best of several is measured once more: it would be a little too good otherwise.
            "best rates": with_error(HORIZON * np.asarray(fresh_rewards(network, best, intervals, 5))),
        },
        "episodes": episodes,
        "good rates": with_error(constant),
        "best rates of the relaxation, in the network": with_error(played(1.0, 0.0, 7)),
        "tried: boldness, caution, return": [(*pair, round(mean, 1)) for pair, mean in tried.items()],
        "queues seen": {"boldness": seeing[0], "caution": seeing[1], **with_error(sighted)},
        "queues not seen": {"boldness": blind[0], **with_error(unsighted)},
        "gain of seen queues": with_error(sighted - unsighted),
        "gain of both over good rates": with_error(sighted - constant),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--search-steps", type=int, default=200_000, help="intervals that the search simulates"
    )
    parser.add_argument("--intervals", type=int, default=20_000, help="fresh intervals that measure its best")
    parser.add_argument("--episodes", type=int, default=64, help="episodes of the network itself")
    chosen = parser.parse_args()
    results = {}
    for name in LAYOUTS:
        begun = time.perf_counter()
        results[name] = study(name, chosen.search_steps, chosen.intervals, chosen.episodes)
        results[name]["seconds"] = round(time.perf_counter() - begun, 1)
        print(name, json.dumps(results[name], indent=1), flush=True)
    print("stored in", save_result("network_bound", results))


if __name__ == "__main__":
    main()
