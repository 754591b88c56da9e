"""PPO of TorchRL on HalfCheetah with a limit on the mechanical power.

`GymWrapper` takes an environment that is already wrapped. Needs `pip install torchrl`.
"""

import gymnasium
import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Unbounded
from torchrl.envs import DoubleToFloat, TransformedEnv
from torchrl.envs.libs.gym import GymWrapper, default_info_dict_reader
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import inbounds as ib

STEPS, BATCH, EPOCHS = 2_048, 512, 4
power = ib.PowerBudget(weights=ib.obs[11:17], bound=20.0)  # sum of max(torque * joint velocity, 0)

guard = ib.Guard(gymnasium.make("HalfCheetah-v5"), power)  # raises an error if an infeasible action arrives
projected = ib.ProjectAction(guard)
wrapped = GymWrapper(projected)
# What was executed becomes a tensor too. Its shape must be given, because `reset` executes nothing.
executed = {"executed_action": Unbounded(wrapped.action_spec.shape)}
wrapped.set_info_dict_reader(default_info_dict_reader(["executed_action"], spec=executed))
env = TransformedEnv(wrapped, DoubleToFloat(in_keys=["observation"]))
env.set_seed(0)
torch.manual_seed(0)

size, dimension = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
head = nn.Sequential(MLP(size, 2 * dimension, num_cells=[64, 64]), NormalParamExtractor())
actor = ProbabilisticActor(
    TensorDictModule(head, in_keys=["observation"], out_keys=["loc", "scale"]),
    spec=env.action_spec,
    in_keys=["loc", "scale"],
    distribution_class=TanhNormal,
    return_log_prob=True,
)
critic = ValueOperator(MLP(size, 1, num_cells=[64, 64]))
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=critic)
loss = ClipPPOLoss(actor, critic, entropy_coeff=1e-3)
optimiser = torch.optim.Adam(loss.parameters(), 3e-4)

changed = 0
collector = Collector(env, actor, frames_per_batch=BATCH, total_frames=STEPS)
for batch in collector:
    # PPO needs the density of the action that it drew, and keeps that action; the next state is of the executed one.
    changed += int((batch["action"] != batch["next", "executed_action"]).any(-1).sum())
    for _ in range(EPOCHS):
        advantage(batch)
        terms = loss(batch)
        optimiser.zero_grad()
        (terms["loss_objective"] + terms["loss_critic"] + terms["loss_entropy"]).backward()
        optimiser.step()

print(f"{changed} of {STEPS} actions were projected; worst violation {guard.worst_violation:.3g}")
assert 0 < changed < STEPS
assert guard.worst_violation <= 0.0
collector.shutdown()
