"""Which fields the files of a run folder have; whoever reads one can rely on them."""

from __future__ import annotations

from inbounds.limits import MOST_SEEDS
from inbounds.reading import COUNT, FINITE, NUMBER, Several, Whole

CONFIG_SHAPE = {
    "task": str,
    "observation_shift?": ([FINITE], None),
    "observation_scale?": ([FINITE], None),
    "reward_divisor?": FINITE,
    "reward_shift?": FINITE,
    "learner": {"name": str},
    "head?": ({"kind": str}, None),
    "training": {
        "steps": COUNT,
        "seed": COUNT,
        "seeds": Whole(1, MOST_SEEDS),
        "environments": Whole(1),
        "updates_per_step": FINITE,
        "episodes": Whole(1),
        "preference": Several(FINITE, 2),
        "device?": (str, None),
        "deterministic?": bool,
    },
}
PROVENANCE_SHAPE = {
    "inbounds": str,
    "commit": (str, None),
    "is_dirty": bool,
    "python": str,
    "packages": {"mujoco": (str, None), "*": (str, None)},
    "platform": str,
    "processor": str,
    "device": str,
    "started": str,
    "preparation_seconds?": (FINITE, None),
}
ROW_SHAPES = {
    "metrics.jsonl": {
        "step": COUNT,
        "seed": COUNT,
        "steps_per_second": NUMBER,
        "acceptance": (NUMBER, None),
        "projections": FINITE,
        "*": (NUMBER, None),
    },
    "evaluations.jsonl": {
        "step": COUNT,
        "seed": COUNT,
        "return": NUMBER,
        "return_deviation": NUMBER,
        "length": NUMBER,
        "valid_action_rate": NUMBER,
        "deterministic_valid_rate": NUMBER,
        "evaluation_projections": FINITE,
        "worst_violation": NUMBER,
        "training_projections": FINITE,
        "seconds": NUMBER,
    },
}
"""By the name of the log; other fields may stand beside these."""
