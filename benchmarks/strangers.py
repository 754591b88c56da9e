"""Tasks that no setting was tuned on: Gymnasium's and a third party's environments under limits that bind.

`inbounds benchmark benchmarks/strangers.py:suite` trains ARAM, SAC with projection and SPre+ on them with the settings
that `ib.train(task)` uses. It needs `pip install -r requirements/strangers.txt` beside inbounds; to a machine without
network, `make bundle BUNDLE="--also box2d gymnasium-robotics"` carries the same.
At least 30 % of uniform actions in the box are infeasible at the states that a uniform policy visits
(`python -m benchmarks.strangers` measures it); two of the sets move with the observation, two with the previous action.
"""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np

import inbounds as ib
from inbounds.experiments import Cell, Suite, pairs

STEPS = 100_000


def lunar_lander() -> ib.Task:
    """Land with a limited total thrust and valves that open slowly."""
    limit = ib.Ball(radius=1.0) & ib.RateLimit(0.25)
    return ib.Task(lambda: gymnasium.make("LunarLander-v3", continuous=True), limit, name="lunarlander")


def pendulum() -> ib.Task:
    """Swing up with a drive that gives and takes limited power: |torque x speed| <= 2."""
    limit = ib.WeightedL1(ib.obs[2:3], 2.0)
    return ib.Task(lambda: gymnasium.make("Pendulum-v1"), limit, name="pendulum")


def walker() -> ib.Task:
    """Walk with a limited sum of joint powers."""
    return ib.Task(lambda: gymnasium.make("Walker2d-v5"), ib.PowerBudget(ib.obs[11:17], 5.0), name="walker2d")


def pusher() -> ib.Task:
    """Push with a limited norm of the seven joint torques."""
    return ib.Task(lambda: gymnasium.make("Pusher-v5"), ib.Ball(radius=2.5), name="pusher")


def point_maze() -> ib.Task:
    """Reach a goal in a maze with a force that is limited in length and in its change: a goal-conditioned task."""
    import gymnasium_robotics

    gymnasium.register_envs(gymnasium_robotics)
    limit = ib.Ball(radius=0.7) & ib.RateLimit(0.4)
    return ib.Task(lambda: gymnasium.make("PointMaze_UMazeDense-v3"), limit, name="pointmaze")


TASKS = {
    "lunarlander": lunar_lander,
    "pendulum": pendulum,
    "walker2d": walker,
    "pusher": pusher,
    "pointmaze": point_maze,
}


def cells() -> Iterator[Cell]:
    """Return every learner on every task, five seeds."""
    training = pairs({"evaluate_every": 10_000, "capacity": STEPS})
    for task in TASKS:
        for learner, preset in (
            ("aram", "default"),
            ("aram", "normalised"),
            ("sac", "paper"),
            ("spre", "paper"),
        ):
            yield Cell(task, learner, preset, STEPS, training=training)


suite = Suite(
    "strangers",
    "Does ARAM hold on tasks that no setting was tuned on?",
    cells,
    tasks=TASKS,
)


def infeasible_rate(task: ib.Task, steps: int = 1_000, seed: int = 0) -> float:
    """Return the rate of infeasible uniform actions of the box, at the states of a feasible uniform policy."""
    rng = np.random.default_rng(seed)
    environment = task.make_environment()
    observation, _ = environment.reset(seed=seed)
    environment.action_space.seed(seed)
    count = 0.0
    for _ in range(steps):
        proposals = rng.uniform(task.action_low, task.action_high, (20, task.action_low.size))
        count += np.mean(
            task.constraint.violation(np.broadcast_to(observation, (20, *observation.shape)), proposals) > 0
        )
        observation, _, terminated, truncated, _ = environment.step(environment.action_space.sample())
        if terminated or truncated:
            observation, _ = environment.reset()
    return float(count / steps)


if __name__ == "__main__":
    for name, make in TASKS.items():
        print(f"{name:12} {infeasible_rate(make()):.2f} of uniform actions are infeasible")
