"""Three reservoirs from pyRDDLGym: nothing is released that is not there, and the river holds only so much.

The published domain cuts a release that exceeds the level silently. Here such an action never arises: the box of
releases is read from the levels, and all releases together stay below what the river carries.
Needs `pip install pyRDDLGym rddlrepository`, or this library's extra `envs`.
"""

import logging
import warnings

import gymnasium
import numpy as np

warnings.filterwarnings(
    "ignore", module="pyRDDLGym|ply"
)  # about its parser's tables and a rule that it leaves out
logging.disable(logging.WARNING)
import pyRDDLGym  # noqa: E402

import inbounds as ib  # noqa: E402


def reservoirs():
    """Keep three levels between 20 and 80; the simulator wants each release as a plain number."""
    simulator = pyRDDLGym.make("Reservoir_Continuous", "0")
    return gymnasium.wrappers.TransformAction(
        simulator,
        lambda releases: {name: float(amount[0]) for name, amount in releases.items()},
        simulator.action_space,
    )


levels = ib.obs[0:3]
available = ib.Box(0.0, 0.95 * levels) & ib.Box(0.0, 30.0)  # 5 % lie below the outlet
river = ib.WeightedL1(weights=[1.0, 1.0, 1.0], bound=30.0)  # the sum of the releases

limit = available & river
task = ib.Task(reservoirs, limit, horizon=120, reward_divisor=100.0, reward_shift=7.0)
task = task.normalised(
    rewards=False, steps=500
)  # networks see levels relative to what random releases lead to
print(task.observation_parts, ib.check_task(task), sep="\n")

run = ib.train(task, ib.Aram(hidden=(64, 64)), steps=1_000, evaluate_every=0, episodes=3)
print(run)

policy = ib.load(run.path)
environment = task.make_environment()
observation, _ = environment.reset(seed=0)
total = 0.0
for _ in range(120):
    release = policy.act(observation)
    assert release.sum() <= 30.0 and np.all(release <= 0.95 * observation[:3])
    observation, reward, *_ = environment.step(release)
    total += reward
print(f"return of one season: {total:.0f}; levels at its end: {np.round(observation[:3], 1)}")
