"""Presets: every published value of a baseline, written out, so that a change of a default cannot move one unseen."""

from __future__ import annotations

from typing import Any

import pytest

from inbounds.learners.registry import make_learner

TD3: dict[str, Any] = {
    **{"gamma": 0.99, "tau": 0.005, "learning_rate": 1e-3, "exploration": 0.1},
    **{"smoothing": 0.2, "smoothing_limit": 0.5, "policy_delay": 2, "critics": 2},
}
DDPG = TD3 | {"smoothing": 0.0, "policy_delay": 1, "critics": 1}
SAC: dict[str, Any] = {"gamma": 0.99, "tau": 0.005, "alpha": None, "target_entropy": None}
SAME = {"hidden": (256, 256), "batch_size": 256}
"""What the ARAM paper gives every method but FlowPG."""
KASAURA = {"hidden": (400, 300), "batch_size": 100}
LIN = DDPG | {"hidden": (400, 300), "batch_size": 16}
PUBLISHED: dict[tuple[str, str], dict[str, Any]] = {
    ("td3", "paper"): TD3 | SAME | {"stored": "projected", "penalty": 0.0},
    ("dpre", "paper"): TD3 | SAME | {"stored": "raw", "penalty": 1.0},
    ("dpre", "kasaura"): TD3 | KASAURA | {"stored": "raw", "penalty": 1.0},
    ("sac", "paper"): SAC | SAME | {"learning_rate": 3e-4, "stored": "projected", "penalty": 0.0},
    ("spre", "paper"): SAC | SAME | {"learning_rate": 1e-3, "stored": "raw", "penalty": 1.0},
    ("spre", "kasaura"): SAC | SAME | {"learning_rate": 3e-4, "stored": "raw", "penalty": 1.0},
    ("srad", "paper"): SAC | SAME | {"learning_rate": 3e-4},
    ("nfwpo", "paper"): TD3 | SAME | {"rate": 0.01},
    ("nfwpo", "kasaura"): TD3 | KASAURA | {"rate": 0.01},
    ("nfwpo", "lin"): LIN | {"tau": 0.001, "rate": 0.05},
    ("dalpha", "paper"): TD3 | SAME,
    ("drad", "paper"): TD3 | SAME,
    ("drad", "kasaura"): TD3 | KASAURA,
    ("optlayer", "paper"): TD3 | SAME | {"penalty": 0.0},
    ("optlayer", "kasaura"): TD3 | KASAURA,
    ("optlayer", "lin"): LIN | {"tau": 0.0488, "policy_delay": 50},
    ("appropt", "paper"): TD3 | SAME,
    ("appropt", "bhatia"): DDPG | {"hidden": (400, 300), "batch_size": 128, "tau": 0.001, "gamma": 1.0},
    ("flowpg", "paper"): DDPG
    | {"hidden": (400, 300), "batch_size": 100, "flow_layers": 6, "flow_hidden": (256, 256)}
    | {"flow_learning_rate": 1e-5, "flow_rate_left": 1.0, "flow_batch_size": 256, "flow_width": 1e-4}
    | {"flow_samples": 500_000, "flow_steps": 195_000, "flow_gradient_limit": 0.1},
    ("focops", "paper"): {
        **{"hidden": (64, 64), "learning_rate": 3e-4, "gamma": 0.99, "trace": 0.95, "rollout": 2_048},
        **{"batch_size": 64, "epochs": 10, "width": 1.5, "trust": 0.02, "initial_log_std": -0.5},
        **{"multiplier_rate": 0.01, "largest_multiplier": 2.0, "gradient_limit": 40.0},
        **{"cost": "published", "stored": "raw"},
    },
    ("iar", "paper"): {
        **{"hidden": (128,), "learning_rate": 3e-4, "gamma": 0.99, "trace": 1.0, "rollout": 64},
        **{"layers": 4, "posterior_layers": 2, "density_draws": 4, "gradient_limit": 0.5, "proposals": 128},
    },
    ("aram-discrete", "paper"): SAME | {"proposals": 100, "penalty": 0.2, "eta": 0.2},
}


@pytest.mark.parametrize(("name", "preset"), PUBLISHED)
def test_a_preset_has_its_published_values(name: str, preset: str) -> None:
    learner, published = make_learner(name, preset=preset), PUBLISHED[name, preset]
    assert {field: getattr(learner, field) for field in published} == published
