"""DPre+: TD3 that stores its own actions, projects in the environment and pays for leaving the set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from inbounds.learners.learner import with_presets
from inbounds.learners.td3 import Td3

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"hidden": (400, 300), "batch_size": 100},
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Dpre(Td3):
    """DPre+ (Kasaura et al. 2023), on TD3 although the ARAM paper calls it DDPG-based, as its code is on TD3.

    The projection belongs to the environment: the critics value the action before it, and the actor's loss
    -Q_1(s, mu(s)) + g(s, mu(s)) pulls the actor towards the set. `penalty=0` is DPre, `stored="projected"`
    DPro+.
    """

    stored: Literal["projected", "raw"] = "raw"
    penalty: float = 1.0
