"""How many epochs of bike sharing one core plays per second: whole episodes compiled, batch by batch."""

from __future__ import annotations

import os
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.provenance import save_result
from inbounds.tasks.bike_sharing import SYSTEMS, allocation_slice, bike_sharing_task, compiled_bike_sharing

BATCHES = (1, 16, 256, 1024, 4096)
ROUNDS = 5


def seconds_of(function, *arguments) -> float:  # type: ignore[no-untyped-def]
    """Return the median time of a call that was compiled before."""
    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compiled_epochs_per_second(name: str, batch: int) -> float:
    """Play whole episodes in one program; requests for fractions of bikes keep the rounding busy."""
    environment = compiled_bike_sharing(SYSTEMS[name])
    now = allocation_slice(environment.action_size)

    def episode(key: jax.Array) -> jax.Array:
        def epoch(carried, number):  # type: ignore[no-untyped-def]
            state, observation = carried
            action = 30.0 + 0.7 * (observation[now] - 30.0) + 0.1 * jnp.sin(number + observation[now])
            step = environment.step(state, action, key)
            return (step.state, step.observation), step.reward

        return jax.lax.scan(epoch, environment.reset(key), jnp.arange(environment.horizon))[1].sum()

    play = jax.jit(jax.vmap(episode))
    keys = jax.random.split(jax.random.key(0), batch)
    return batch * environment.horizon / seconds_of(play, keys)


def gymnasium_steps_per_second(name: str) -> float:
    """Step one guarded environment from Python, the way a user's own loop does."""
    environment = bike_sharing_task(name).make_environment()
    action = np.full(environment.action_space.shape, 30, np.float32)

    def episode() -> None:
        environment.reset(seed=0)
        for _ in range(100):
            environment.step(action)

    return 100 / seconds_of(episode)


def main() -> None:
    # JAX starts its threads with its first computation, and they may use what the process may use by then.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = []
    print(f"{'task':8}{'environments':>14}{'epochs/s, one core':>22}{'us per epoch':>14}")
    for name in SYSTEMS:
        for batch in BATCHES:
            rate = compiled_epochs_per_second(name, batch)
            rows.append({"task": name, "environments": batch, "epochs_per_second": round(rate)})
            print(f"{name:8}{batch:14}{rate:22,.0f}{1e6 / rate:14.2f}")
        rate = gymnasium_steps_per_second(name)
        rows.append({"task": name, "environments": "1, by Gymnasium", "epochs_per_second": round(rate)})
        print(f"{name:8}{'Gymnasium':>14}{rate:22,.0f}{1e6 / rate:14.2f}")
    save_result("bike_sharing", {"cores_used": 1, "rounds": ROUNDS, "rows": rows})


if __name__ == "__main__":
    main()
