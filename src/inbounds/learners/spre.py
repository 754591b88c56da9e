"""SPre+: SAC that stores its own actions, projects in the environment and pays for leaving the set."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from inbounds.learners.learner import with_presets
from inbounds.learners.sac import Sac

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The paper's table says 1e-3 for all three rivals; the implementation that it used has 3e-4 for SAC.
    "paper": {"learning_rate": 1e-3, "hidden": (256, 256), "batch_size": 256},
    "kasaura": {"learning_rate": 3e-4, "hidden": (256, 256), "batch_size": 256},
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Spre(Sac):
    """SPre+ (Kasaura et al. 2023): alpha log pi - min_j Q_j(s, a) + g(s, a), a drawn before the projection.

    `penalty=0` is SPre, `stored="projected"` SPro+.
    """

    stored: Literal["projected", "raw"] = "raw"
    penalty: float = 1.0
