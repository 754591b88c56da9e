"""SAC of stable-baselines3 on HalfCheetah with a limit on the mechanical power.

`ib.ProjectAction` around the environment is the only change. Needs `pip install stable-baselines3`.
"""

import gymnasium
from stable_baselines3 import SAC

import inbounds as ib

STEPS = 1_000
power = ib.PowerBudget(weights=ib.obs[11:17], bound=20.0)  # sum of max(torque * joint velocity, 0)

guard = ib.Guard(gymnasium.make("HalfCheetah-v5"), power)  # raises an error if an infeasible action arrives
env = ib.ProjectAction(guard)
model = SAC("MlpPolicy", env, learning_starts=300, device="cpu", seed=0)
model.learn(STEPS)
print(f"{env.projections} of {STEPS} actions were projected; worst violation {guard.worst_violation:.3g}")
assert 0 < env.projections < STEPS
assert guard.worst_violation <= 0.0

# At deployment the trained agent goes behind a filter, which needs no environment.
safety = ib.SafetyFilter(power & ib.Box(-1.0, 1.0), model)
observation, _ = guard.reset(seed=1)
for _ in range(200):
    observation, _, _, _, _ = guard.step(safety.act(observation))
print(f"deployed: {safety.metrics()['calls']} actions, worst violation {guard.worst_violation:.3g}")
assert guard.worst_violation <= 0.0
