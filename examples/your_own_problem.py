"""From an environment and a limit to a policy that is trained, exported and audited: what the README shows."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

import inbounds as ib


class Heating(gymnasium.Env):  # two rooms on one fuse, which the kitchen shares
    observation_space = Dict({"fuse": Box(1.0, 3.0, (1,)), "rooms": Box(-50.0, 50.0, (2,))})
    action_space = Box(0.0, 2.0, (2,))  # kW

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.rooms = self.np_random.uniform(-3.0, 3.0, 2)  # degrees above what is wanted
        return {"fuse": self.np_random.uniform(1.0, 3.0, 1), "rooms": self.rooms}, {}

    def step(self, heat):
        self.rooms = 0.9 * self.rooms + heat - 0.8
        seen = {"fuse": self.np_random.uniform(1.0, 3.0, 1), "rooms": self.rooms}
        return seen, 4.0 - np.abs(self.rooms).mean(), False, False, {}


limit = ib.WeightedL1([1, 1], ib.obs["fuse", 0])
task = ib.Task(Heating, limit, horizon=100, ends_only_in_failure=True)
if __name__ == "__main__":
    print(ib.check_task(task))  # units, shapes, readings, empty sets, seeds, rewards: all well?
    run = ib.train(task, ib.Aram(hidden=(64, 64)), steps=2_000)
    certificate = ib.audit(ib.export(run), task, steps=1_000)  # as ONNX, the fuse inside
    print(run, f"{certificate.violations} violations in {certificate.steps} steps", sep="\n")
