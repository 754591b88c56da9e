"""SAC in one file with torch, in the style of CleanRL: acceptance-rejection in a vector environment.

Each environment asks the actor for another proposal while an action is infeasible, and the replay buffer stores the
action that was executed. Needs `pip install torch`.
"""

import copy

import gymnasium
import numpy as np
import torch
from torch import nn

import inbounds as ib

ENVIRONMENTS, STEPS, WARM_UP, BATCH = 4, 1_000, 200, 128  # steps of all environments together
DISCOUNT, TAU, LEARNING_RATE = 0.99, 0.005, 3e-4
power = ib.PowerBudget(weights=ib.obs[11:17], bound=20.0)  # sum of max(torque * joint velocity, 0)


def make_env():
    guard = ib.Guard(gymnasium.make("HalfCheetah-v5"), power)  # raises if an infeasible action arrives
    return ib.AcceptReject(guard, proposals=20)


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


def draw(observation):
    """Return a squashed Gaussian action in (-1, 1) and its log-density."""
    mean, log_std = actor(observation).chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.clamp(-5.0, 2.0).exp())
    raw = normal.rsample()
    log_slope = 2.0 * (np.log(2.0) - raw - nn.functional.softplus(-2.0 * raw))  # log(1 - tanh(raw)^2)
    return torch.tanh(raw), (normal.log_prob(raw) - log_slope).sum(-1)


@torch.no_grad()
def propose(observation):
    """Return a proposal as NumPy, for one observation or many; the wrappers ask this again after a rejection."""
    return draw(torch.as_tensor(observation, dtype=torch.float32))[0].numpy()


def q_values(networks, observation, action):
    return torch.cat([network(torch.cat([observation, action], -1)) for network in networks], -1)


def descend(optimiser, loss):
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def update():
    rows = torch.as_tensor(rng.integers(stored, size=BATCH))
    observation, action, reward, following, is_terminal = (column[rows] for column in replay)
    temperature = log_temperature.exp().detach()
    with torch.no_grad():
        next_action, next_log_density = draw(following)
        next_value = q_values(targets, following, next_action).min(-1).values - temperature * next_log_density
        target = reward + DISCOUNT * (1.0 - is_terminal) * next_value
    errors = q_values(critics, observation, action) - target[:, None]
    descend(critic_optimiser, errors.square().sum(-1).mean())
    new_action, log_density = draw(observation)
    value = q_values(critics, observation, new_action).min(-1).values
    descend(actor_optimiser, (temperature * log_density - value).mean())
    descend(temperature_optimiser, -log_temperature * (log_density.detach().mean() - dimension))
    with torch.no_grad():
        for slow, fast in zip(targets.parameters(), critics.parameters(), strict=True):
            slow.lerp_(fast, TAU)


rng = np.random.default_rng(0)
torch.manual_seed(0)
envs = gymnasium.vector.SyncVectorEnv([make_env] * ENVIRONMENTS)
size, dimension = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
actor = mlp(size, 2 * dimension)
critics = nn.ModuleList([mlp(size + dimension, 1) for _ in range(2)])
targets = copy.deepcopy(critics)
log_temperature = torch.zeros((), requires_grad=True)
critic_optimiser = torch.optim.Adam(critics.parameters(), LEARNING_RATE)
actor_optimiser = torch.optim.Adam(actor.parameters(), LEARNING_RATE)
temperature_optimiser = torch.optim.Adam([log_temperature], LEARNING_RATE)
replay = [torch.zeros(STEPS, *shape) for shape in ((size,), (dimension,), (), (size,), ())]
stored, proposals = 0, 0

envs.set_attr("policy", propose)  # the wrappers exist before the actor, so that they get it here
observations, _ = envs.reset(seed=0)
for step in range(0, STEPS, ENVIRONMENTS):
    following, rewards, terminated, truncated, infos = envs.step(propose(observations))
    # A step that only resets an environment executes nothing, and is not stored.
    ran = np.flatnonzero(infos.get("_executed_action", np.zeros(ENVIRONMENTS, bool)))
    for index in ran:
        row = (observations, infos["executed_action"], rewards, following, terminated)
        for column, values in zip(replay, row, strict=True):
            column[stored] = torch.as_tensor(values[index], dtype=torch.float32)
        stored, proposals = stored + 1, proposals + int(infos["action_proposals"][index])
    observations = following
    if step >= WARM_UP:
        for _ in range(ENVIRONMENTS):
            update()

worst = max(envs.get_attr("worst_violation"))
print(
    f"{stored} actions from {proposals} proposals, {sum(envs.get_attr('projections'))} projected; "
    f"worst violation {worst:.3g}"
)
assert stored == STEPS and proposals > stored
assert worst <= 0.0
