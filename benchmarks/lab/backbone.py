"""The questions about the normalised backbone that are open, as a suite: seeds 0 to 4, 100,000 steps, from scratch.

`inbounds benchmark benchmarks/lab/backbone.py:suite` trains `ib.Aram(preset="normalised")` and variants of it on two
locomotion tasks, two resource tasks and LunarLander (benchmarks/strangers.py), beside the default that starts anywhere
in the box with a discount of 0.99. Each variant changes one thing. `--variants` narrows it down.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.strangers import lunar_lander
from inbounds.experiments import Cell, Suite, pairs

STEPS = 100_000
TASKS = ("halfcheetah", "ant", "nsfnet", "bss5z", "lunarlander")
VARIANTS: dict[str, dict[str, Any]] = {
    "as-it-is": {},
    "one-proposal": {"proposals": 1},
    "small": {"hidden": (128, 128)},
    "fixed-penalty": {"target_acceptance": None},
    "no-self-loops": {"augmented": False, "proposals": 1},
    "acceptance-0.9": {"target_acceptance": 0.9},
    "acceptance-0.98": {"target_acceptance": 0.98},
    "five-proposals": {"proposals": 5},
    "one-preference": {"preference": (0.9, 0.1)},
}
"""Settings that differ from the preset, by the name of the variant."""
SCALED: dict[str, dict[str, Any]] = {
    "from-scratch": {},
    "from-scratch-one-proposal": {"proposals": 1},
    "from-scratch-five-proposals": {"proposals": 5},
}
"""Settings of the default, which here starts anywhere in the box with a discount of 0.99, by variant."""


def cells() -> Iterator[Cell]:
    """Return every variant on every task, the most informative first."""
    training = pairs({"evaluate_every": 10_000, "capacity": STEPS})
    for variant, settings in VARIANTS.items():
        for task in TASKS:
            own = pairs(settings)
            yield Cell(task, "aram", "normalised", STEPS, variant=variant, settings=own, training=training)
    for variant, settings in SCALED.items():
        for task in TASKS:
            own = pairs({"gamma": 0.99, "warm_start": False, **settings})
            yield Cell(task, "aram", "default", STEPS, variant=variant, settings=own, training=training)


suite = Suite(
    "backbone",
    "What do the parts of the normalised backbone bring, and how should proposals and penalties be set?",
    cells,
    tasks={"lunarlander": lunar_lander},
)
