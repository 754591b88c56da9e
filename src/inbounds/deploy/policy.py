"""A trained policy for one state at a time: numpy alone, acceptance first, projection as the last resort."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from inbounds.constraints import Constraint, constraint_from_json
from inbounds.errors import CheckpointError, InvalidInputError

GAUSSIAN_LEARNERS = ("aram", "sosac", "sac", "spre")
"""Learners whose network says mean and log-deviation; the deterministic ones say the action itself."""
DETERMINISTIC_LEARNERS = ("td3", "dpre", "nfwpo")

Layers = list[tuple[NDArray[np.float32], NDArray[np.float32]]]


class Policy:
    """Acts with a network, a box and a constraint; every action is feasible, with no tolerance.

    A stochastic action is the first feasible of up to `proposals` draws, tested in blocks, since one matrix of
    candidates costs little more than one candidate; if none is feasible the last one is projected.
    """

    block = 20

    def __init__(
        self,
        layers: Layers,
        constraint: Constraint,
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        *,
        preference: NDArray[np.float32] | None,
        is_gaussian: bool,
        proposals: int,
        rng: np.random.Generator,
    ) -> None:
        """Keep what acting needs."""
        self.layers, self.constraint, self.preference = layers, constraint, preference
        self.is_gaussian, self.proposals, self.rng = is_gaussian, proposals, rng
        self.low, self.high = low, high
        self._middle, self._half = np.float32(0.5) * (high + low), np.float32(0.5) * (high - low)
        self.observation_size = layers[0][0].shape[0] - (0 if preference is None else len(preference))
        self.projections = 0
        """How often no proposal was feasible."""

    def act(self, observation: Any, deterministic: bool = False) -> NDArray[np.float32]:
        """Return a feasible action in the units that `env.step` receives."""
        seen = np.asarray(observation, dtype=np.float64)
        if seen.shape != (self.observation_size,) or not np.isfinite(seen).all():
            raise InvalidInputError(
                f"the policy expects one finite observation of {self.observation_size} entries, got {seen.shape}: "
                f"{observation}. Pass the observation as the environment returned it."
            )
        output = self.forward(seen.astype(np.float32))
        if not self.is_gaussian:
            return self._first_feasible(seen, self._stretched(np.tanh(output))[None])
        mean, log_deviation = np.split(output, 2)
        if deterministic:
            return self._first_feasible(seen, self._stretched(np.tanh(mean))[None])
        deviation = np.exp(np.clip(log_deviation, -20.0, 2.0))
        drawn = 0
        while True:
            count = min(self.block, self.proposals - drawn)
            noise = self.rng.standard_normal((count, mean.size), dtype=np.float32)
            candidates = self._stretched(np.tanh(mean + deviation * noise))
            drawn += count
            is_feasible = self.constraint.contains(seen, candidates)
            if is_feasible.any():
                accepted: NDArray[np.float32] = candidates[int(is_feasible.argmax())]
                return accepted
            if drawn >= self.proposals:
                return self._projected(seen, candidates[-1])

    def forward(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the network's output for one observation."""
        hidden = observation if self.preference is None else np.concatenate([observation, self.preference])
        for weight, bias in self.layers[:-1]:
            hidden = np.maximum(hidden @ weight + bias, np.float32(0))
        weight, bias = self.layers[-1]
        output: NDArray[np.float32] = hidden @ weight + bias
        return output

    def _stretched(self, squashed: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.clip(self._middle + self._half * squashed, self.low, self.high)

    def _first_feasible(
        self, seen: NDArray[np.float64], candidates: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        if bool(self.constraint.contains(seen, candidates[0])):
            raw: NDArray[np.float32] = candidates[0]
            return raw
        return self._projected(seen, candidates[0])

    def _projected(self, seen: NDArray[np.float64], action: NDArray[np.float32]) -> NDArray[np.float32]:
        self.projections += 1
        projected: NDArray[np.float32] = np.asarray(self.constraint.project(seen, action), np.float32)
        return projected


def load(path: str | Path, seed: int | None = None, preference: tuple[float, float] = (0.9, 0.1)) -> Policy:
    """Load the policy of a run folder.

    Args:
        path: the folder that training wrote, or one that holds its config.json and policy.safetensors.
        seed: which of the trained seeds; the first one by default. The policy's own draws start from it, too.
        preference: weight of reward and of validity, for policies that were learnt for all of them.
    """
    folder = Path(path)
    try:
        config = json.loads((folder / "config.json").read_text())
        arrays = load_file(folder / "policy.safetensors")
        name = config["learner"]["name"]
        first, count = int(config["training"]["seed"]), int(config["training"]["seeds"])
        constraint = constraint_from_json(config["constraint"])
        low, high = (np.asarray(config[side], np.float32) for side in ("action_low", "action_high"))
    except FileNotFoundError as error:
        raise InvalidInputError(
            f"{folder} is not a run ({error}). Give the folder that training wrote."
        ) from error
    except (KeyError, TypeError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{folder} is damaged or was written by another version ({error}). Train again or restore it."
        ) from error
    if name not in GAUSSIAN_LEARNERS + DETERMINISTIC_LEARNERS:
        raise InvalidInputError(
            f"a policy of '{name}' acts through more than a network and a projection, which this runtime does not "
            f"hold. Known: {', '.join(GAUSSIAN_LEARNERS + DETERMINISTIC_LEARNERS)}. Evaluate it with "
            f"`inbounds evaluate`."
        )
    wanted = first if seed is None else seed
    if not first <= wanted < first + count:
        raise InvalidInputError(
            f"seed {wanted} was not trained in {folder}. Choose one of {first}..{first + count - 1}."
        )
    layers = _layers(arrays, wanted - first, folder)
    is_conditioned = name == "aram"
    policy = Policy(
        layers,
        constraint,
        low,
        high,
        preference=np.asarray(preference, np.float32) if is_conditioned else None,
        is_gaussian=name in GAUSSIAN_LEARNERS,
        proposals=int(config["learner"].get("proposals", 1)),
        rng=np.random.default_rng(wanted),
    )
    if policy.observation_size != int(config["observation_size"]):
        raise CheckpointError(f"{folder}: network and configuration disagree on the size of an observation.")
    return policy


def _layers(arrays: dict[str, NDArray[Any]], index: int, folder: Path) -> Layers:
    depth = sum(1 for name in arrays if name.startswith("actor/") and name.endswith("/weight"))
    try:
        return [(arrays[f"actor/{k}/weight"][index], arrays[f"actor/{k}/bias"][index]) for k in range(depth)]
    except (KeyError, IndexError) as error:
        raise CheckpointError(
            f"{folder}: policy.safetensors lacks layers ({error}). Train again or restore it."
        ) from error
