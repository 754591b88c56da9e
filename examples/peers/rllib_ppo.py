"""PPO of RLlib's new API stack on HalfCheetah with a limit on the mechanical power.

The registered environment holds the wrapper. Needs `pip install "ray[rllib]" torch`.
"""

import gymnasium
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

import inbounds as ib


def limited(config):
    power = ib.PowerBudget(
        weights=ib.obs[11:17], bound=config["bound"]
    )  # sum of max(torque * joint velocity, 0)
    guard = ib.Guard(gymnasium.make("HalfCheetah-v5"), power)  # raises if an infeasible action arrives
    return ib.ProjectAction(guard)


register_env("limited", limited)
ray.init(num_cpus=1, include_dashboard=False)
config = (
    PPOConfig()
    .environment("limited", env_config={"bound": 20.0})
    .env_runners(
        num_env_runners=0, num_envs_per_env_runner=2
    )  # in this process, so that we can read the guards
    .training(train_batch_size_per_learner=512, minibatch_size=128, num_epochs=4)
    .debugging(seed=0)
)
algorithm = config.build_algo()
for _ in range(4):
    steps = algorithm.train()["num_env_steps_sampled_lifetime"]

envs = algorithm.env_runner.env.unwrapped
projections = sum(envs.get_attr("projections"))
worst = max(envs.get_attr("worst_violation"))
print(f"{projections} of {steps:.0f} actions were projected; worst violation {worst:.3g}")
assert 0 < projections < steps
assert worst <= 0.0
algorithm.stop()
ray.shutdown()
