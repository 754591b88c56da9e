"""A walking robot whose battery delivers limited power: sum of max(torque x velocity, 0) over its joints.

The limit depends on the state: a fast joint may only be driven gently. Walker2d observes its six joint
velocities at 11:17, and its motors take torques in [-1, 1]; the limit is written in exactly these units.
"""

import inbounds as ib

# A walker whose episode ends has fallen, so that going on may be made worth more than ending.
power = ib.PowerBudget(weights=ib.obs[11:17], bound=5.0)
task = ib.Task("Walker2d-v5", power, ends_only_in_failure=True)
report = ib.check_task(task)
print(report)
assert report.is_ready

learner = ib.Aram(hidden=(64, 64))
run = ib.train(task, learner, steps=400, environments=4, evaluate_every=0, episodes=2)
print(run)

policy = ib.load(run.path, preference=(0.9, 0.1))  # weights of return and of staying within the limit
environment = task.make_environment()
observation, _ = environment.reset(seed=0)
for _ in range(200):
    torque = policy.act(observation)
    power = (torque * observation[11:17]).clip(min=0).sum()
    assert power <= 5.0
    observation, _, terminated, truncated, _ = environment.step(torque)
    if terminated or truncated:
        observation, _ = environment.reset()
print(f"the last action uses {power:.2f} of 5.00; none of 200 used more")
