"""ARAM's update in torch the straightforward way: every candidate is forwarded and differentiated.

Only for comparison of speed: the structure that a reader of the paper would write down first, with twin critics as
modules, the policy loss over all preferences and snapshots at once, and Adam per network.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn


def network(inputs: int, outputs: int) -> nn.Sequential:
    """Return two hidden layers of 256."""
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


class StraightforwardAram:
    """Actor, twin critics with their target, snapshots, and one update of all of them."""

    def __init__(self, observation: int, action: int, preferences: int, snapshots: int) -> None:
        """Build fresh networks."""
        self.actor = network(observation + 2, 2 * action)
        self.critic = nn.ModuleList([network(observation + 2 + action, 2) for _ in range(2)])
        self.target = copy.deepcopy(self.critic)
        self.snapshots = [copy.deepcopy(self.critic) for _ in range(snapshots)]
        self.log_temperature = torch.zeros((), requires_grad=True)
        self.preferences, self.action = preferences, action
        self.actor_optimiser = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_optimiser = torch.optim.Adam(self.critic.parameters(), 3e-4)
        self.temperature_optimiser = torch.optim.Adam([self.log_temperature], 3e-4)

    def draw(self, observation: Any, preference: Any) -> tuple[Any, Any]:
        """Draw squashed actions with their log-density."""
        mean, log_std = self.actor(torch.cat([observation, preference], -1)).chunk(2, -1)
        law = torch.distributions.Normal(mean, log_std.clamp(-20, 2).exp())
        raw = law.rsample()
        action = torch.tanh(raw)
        return action, (law.log_prob(raw) - torch.log(1 - action**2 + 1e-6)).sum(-1)

    def values(self, critic: Any, observation: Any, preference: Any, action: Any) -> Any:
        """Return (twins, batch, objectives)."""
        rows = torch.cat([observation, preference, action], -1)
        return torch.stack([twin(rows) for twin in critic])

    def update(self, batch: dict[str, Any]) -> None:
        """Take one step of critics, actor and temperature, and move the target."""
        share = torch.rand(())
        preference = torch.stack([share, 1 - share]).expand(len(batch["observation"]), 2)
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            action, log_density = self.draw(batch["next"], preference)
            values = self.values(self.target, batch["next"], preference, action)
            worst = (values * preference).sum(-1).argmin(0)
            chosen = values[worst, torch.arange(len(worst))]
            goal = batch["reward"] + 0.99 * (chosen - temperature * log_density[:, None])
        found = self.values(self.critic, batch["observation"], preference, batch["action"])
        critic_loss = (preference * (found - goal) ** 2).sum(-1).mean(1).sum()
        self.critic_optimiser.zero_grad()
        critic_loss.backward()
        self.critic_optimiser.step()

        action, log_density = self.draw(batch["observation"], preference)
        worth = []
        for candidate in range(self.preferences):
            other = preference
            if candidate:
                share = torch.rand(())
                other = torch.stack([share, 1 - share]).expand_as(preference)
            for critic in (self.critic, *self.snapshots):
                values = self.values(critic, batch["observation"], other, action)
                worth.append((values * preference).sum(-1).min(0).values)
        best = torch.stack(worth).max(0).values
        policy_loss = (temperature * log_density - best).mean()
        self.actor_optimiser.zero_grad()
        policy_loss.backward()
        self.actor_optimiser.step()

        temperature_loss = -(self.log_temperature * (log_density.detach() - self.action)).mean()
        self.temperature_optimiser.zero_grad()
        temperature_loss.backward()
        self.temperature_optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.critic.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
