"""Which fields the files of cells and results have; whoever reads one can rely on them."""

from __future__ import annotations

from inbounds.limits import MOST_SEEDS
from inbounds.reading import COUNT, FINITE, Each, Several, Whole
from inbounds.training.record import PROVENANCE_SHAPE

PAIR = Several(FINITE, 2)
BY_SEED = [FINITE]
CURVES_BY_SEED = [[FINITE]]

CELL_SHAPE = {
    "task": str,
    "learner": str,
    "preset": str,
    "steps": Whole(1),
    "seeds": Whole(1, MOST_SEEDS),
    "seed": COUNT,
    "variant": str,
    "settings": dict,
    "training": dict,
    "final_episodes": Whole(1),
}
FINAL_NUMBERS = {
    "episodes": Whole(1),
    "preference": PAIR,
    "return": BY_SEED,
    "return_std": BY_SEED,
    "length": BY_SEED,
    "valid_action_rate": BY_SEED,
    "deterministic_valid_rate": BY_SEED,
    "worst_violation": FINITE,
    "solver_calls": {"acting": [COUNT], "updates": Each([COUNT]), "evaluation": [COUNT], "rounding": COUNT},
}
FRONT = {"points": [Several(FINITE, 5)], "suggested": PAIR}
INFERENCE = {"path": str, "actions": COUNT, "mean": FINITE, "median": FINITE, "with_step": FINITE}
EPISODE = {"step": [COUNT], "share": [FINITE], "reward": [FINITE], "total": FINITE}
FINAL_SHAPE = {
    "final": FINAL_NUMBERS,
    "best?": FINAL_NUMBERS,
    "front?": FRONT,
    "inference?": INFERENCE,
    "episode?": EPISODE,
}
FAILURE_SHAPE = {"error": str}

ORIGIN = {
    **PROVENANCE_SHAPE,
    "seeds": [COUNT],
    "environments": Whole(1),
    "median_steps_per_second": (FINITE, None),
    "learner_settings": dict,
}
RESULT_SHAPE = {
    "suite": str,
    "name": str,
    "task": str,
    "learner": str,
    "preset": str,
    "variant": str,
    "seeds": [COUNT],
    "expected_seeds": COUNT,
    "steps": COUNT,
    "expected_steps": COUNT,
    "curve": {
        "step": [COUNT],
        "seconds": [FINITE],
        "return": CURVES_BY_SEED,
        "valid_action_rate": CURVES_BY_SEED,
        "deterministic_valid_rate": CURVES_BY_SEED,
        "training_projections": CURVES_BY_SEED,
    },
    "training": {"step": [COUNT], "acceptance": [[(FINITE, None)]], "*": [[(FINITE, None)]]},
    "final": {"source": str, **FINAL_NUMBERS},
    "best?": (FINAL_NUMBERS, None),
    "worst_violation": FINITE,
    "environment_steps": COUNT,
    "front": (FRONT, None),
    "inference": (INFERENCE, None),
    "episode": (EPISODE, None),
    "provenance": [ORIGIN],
    "command": str,
}
"""`training` holds `step`, and per quantity one curve for every seed, with gaps where it was not logged."""
REFERENCES_SHAPE = {"tasks": Each({"played": Each({"mean": FINITE, "deviation": FINITE, "episodes": COUNT})})}
