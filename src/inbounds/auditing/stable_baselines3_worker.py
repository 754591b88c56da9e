"""Runs in an interpreter of its own, by its path: rebuilds a stable-baselines3 policy and answers observations.

It imports nothing of ours. A zip of stable-baselines3 holds JSON, pickled objects inside that JSON, and tensors;
only the plain JSON and the tensors (`weights_only=True`) are used, so that nothing of the file can be executed.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
import sys
import time
import zipfile
from typing import Any

import numpy as np

POLICIES = {
    "stable_baselines3.sac.policies": ("SAC", "SACPolicy"),
    "stable_baselines3.td3.policies": ("TD3", "TD3Policy"),
    "stable_baselines3.common.policies": ("PPO or A2C", "ActorCriticPolicy"),
}
LARGEST_PART = 1 << 30
"""Bytes that one part of the archive may hold."""


class RefusedError(Exception):
    """A file that is not what it should be."""


def plain_options(described: Any) -> dict[str, Any]:
    """Return the policy's options from JSON; an activation is read from its name, anything else pickled is refused."""
    if not isinstance(described, dict):
        raise RefusedError("its policy_kwargs are not a dictionary.")
    options: dict[str, Any] = {}
    for name, value in described.items():
        if name in (":type:", ":serialized:"):
            continue
        activation = re.fullmatch(r"<class 'torch\.nn\.modules\.activation\.(\w+)'>", str(value))
        if activation:
            options[name] = getattr(importlib.import_module("torch.nn"), activation[1])
        elif isinstance(value, str) and value.startswith("<"):
            raise RefusedError(
                f"the option {name}={value} exists only as a pickled object, which is not opened here."
            )
        else:
            options[name] = value
    return options


def rebuilt(about: dict[str, Any]) -> tuple[str, Any]:
    """Return the algorithm's name and the policy."""
    torch = importlib.import_module("torch")
    spaces = importlib.import_module("gymnasium.spaces")
    torch.set_num_threads(1)
    with zipfile.ZipFile(about["path"]) as archive:
        if any(part.file_size > LARGEST_PART for part in archive.infolist()):
            raise RefusedError("a part of the archive is larger than 1 GiB.")
        data = json.loads(archive.read("data"))
        with archive.open("policy.pth") as handle:
            weights = torch.load(handle, map_location="cpu", weights_only=True)
    home = data["policy_class"].get("__module__") if isinstance(data.get("policy_class"), dict) else None
    if home not in POLICIES:
        raise RefusedError(
            f"its policy comes from {home}, and only MlpPolicy of SAC, TD3, DDPG, PPO and A2C is known."
        )
    algorithm, name = POLICIES[home]
    options = plain_options(data.get("policy_kwargs", {}))
    if data.get("use_sde"):
        raise RefusedError("it was trained with use_sde=True, whose noise is not rebuilt here.")
    options.pop("use_sde", None)
    observation = spaces.Box(-np.inf, np.inf, (about["observation_size"],), np.float64)
    action = spaces.Box(
        np.asarray(about["action_low"], np.float32), np.asarray(about["action_high"], np.float32)
    )
    policy = getattr(importlib.import_module(home), name)(observation, action, lambda _: 0.0, **options)
    policy.load_state_dict(weights)
    policy.set_training_mode(False)
    return algorithm, policy


def main() -> None:
    """Say what was opened in one line of JSON; then answer 8-byte floats with 8-byte floats."""
    about = json.loads(sys.argv[1])
    answers = sys.stdout.buffer

    def tell(**words: str) -> None:
        answers.write(json.dumps(words).encode() + b"\n")
        answers.flush()

    try:
        importlib.import_module("stable_baselines3")
    except ImportError as error:
        return tell(missing=str(error))
    try:
        algorithm, policy = rebuilt(about)
    except RefusedError as error:
        return tell(error=str(error))
    except Exception as error:  # whatever a broken or foreign file leads to
        return tell(error=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    tell(algorithm=algorithm)
    size = 8 * int(about["observation_size"])
    while len(question := sys.stdin.buffer.read(size)) == size:
        observation = np.frombuffer(question, "<f8").copy()
        began = time.perf_counter()
        action, _ = policy.predict(observation, deterministic=bool(about["deterministic"]))
        spent = time.perf_counter() - began
        answers.write(struct.pack("<d", spent) + np.asarray(action, "<f8").tobytes())
        answers.flush()
    return None


if __name__ == "__main__":
    main()
