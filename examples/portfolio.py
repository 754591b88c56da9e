"""A portfolio with sector caps and a turnover limit: a capped simplex that moves with the last allocation.

The action is the weight of each asset, and what is left is cash. Cash is not an entry of the action: the set
{w >= 0, sum w <= 1} has an inside, whereas weights that must sum to exactly 1 leave no room for acceptance.
"""

import gymnasium
import numpy as np

import inbounds as ib

ASSETS, SECTORS = 4, ([0, 1], [2, 3])


class Market(gymnasium.Env):
    """Prices with a slowly moving drift that is observed with noise; trading costs 0.1 % of what is traded."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Dict(
            {
                "signal": gymnasium.spaces.Box(-np.inf, np.inf, (ASSETS,)),
                "held": gymnasium.spaces.Box(0, 1, (ASSETS,)),
            }
        )
        self.action_space = gymnasium.spaces.Box(0.0, 1.0, (ASSETS,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.drift, self.held = 0.002 * self.np_random.normal(size=ASSETS), np.zeros(ASSETS)
        return self._seen(), {}

    def step(self, weights):
        traded = np.abs(weights - self.held).sum()
        growth = weights @ (self.drift + 0.005 * self.np_random.normal(size=ASSETS)) - 0.001 * traded
        self.held = weights
        self.drift = 0.95 * self.drift + 0.0006 * self.np_random.normal(size=ASSETS)
        return self._seen(), 100.0 * growth, False, False, {}

    def _seen(self):
        return {"signal": 300 * self.drift + 0.3 * self.np_random.normal(size=ASSETS), "held": self.held}


rows = np.zeros((1 + len(SECTORS), ASSETS))
rows[0] = 1.0  # no borrowing: all weights together at most 1
for row, sector in zip(rows[1:], SECTORS, strict=True):
    row[sector] = 1.0  # a sector at most 60 %
limits = (
    ib.Polytope(rows, [1.0, 0.6, 0.6]) & ib.Box(0.0, 0.4) & ib.RateLimit(0.1)
)  # an asset 40 %, +-10 % a day

task = ib.Task(Market, limits, name="portfolio", horizon=60, reward_shift=4.0)
print(ib.check_task(task))
run = ib.train(task, ib.Aram(hidden=(64, 64)), steps=600, evaluate_every=0, episodes=5)
print(run)

policy = ib.load(run.path)
environment = task.make_environment()
observation, _ = environment.reset(seed=1)
for _ in range(60):
    weights = policy.act(observation)
    observation, *_ = environment.step(weights)
print("after 60 days:", np.round(weights, 2), "cash", round(1 - float(weights.sum()), 2))
