"""What the paper does not have: ideas as switches of ARAM, each with the tasks on which it is tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from inbounds.benchmark.cell import Cell, pairs

STEPS = {
    "reacher": 100_000,
    **dict.fromkeys(("halfcheetah", "hopper", "hoppervel"), 200_000),
    "ant": 150_000,
    "nsfnet": 100_000,
    "bss3z": 60_000,
    "bss5z": 60_000,
}
"""Environment steps of a trial: where the curves of the reference part."""
EVALUATE_EVERY = {"halfcheetah": 20_000, "hopper": 20_000, "hoppervel": 20_000, "ant": 15_000}
"""Where an evaluation takes as long as the training between two of them."""
FINAL_EPISODES = dict.fromkeys(EVALUATE_EVERY, 20)
"""Likewise: ideas are told apart by their seeds, which differ far more than episodes of one do."""
LEARNING = ("reacher", "halfcheetah", "nsfnet", "bss3z")
LOCOMOTION = ("halfcheetah", "hopper", "hoppervel", "ant")
RESOURCES = ("nsfnet", "bss3z", "bss5z")


class Idea(NamedTuple):
    """Settings of ARAM, or of its training, that differ from the reference, and where they are tried."""

    tasks: tuple[str, ...]
    settings: Mapping[str, Any]
    training: Mapping[str, Any] = {}

    def on(self, reference: Mapping[str, Any]) -> Idea:
        """Return the idea as a change of these settings."""
        return self._replace(settings={**reference, **self.settings})


FORMER = {"entropy_target": -1.0, "acceptance_lever": "none"}
"""What was the default when most ideas were tried: a nat per dimension everywhere and a constant share."""
PLAIN = FORMER | {
    "gamma": 0.99,
    "least_return_weight": 0.0,
    "entropy_reference": "box",
    "entropy_ramp": 0,
    "scale_rewards": False,
}
"""All preferences, the entropy target of the box, the discount and the rewards as in the paper: what ideas change."""
RAW = PLAIN | {"start": "box", "scale_observations": False, "initial_temperature": 0.1}
"""The reference of the first ideas: raw observations, as in the paper, and a first policy anywhere in the box."""
NARROW = {"least_return_weight": 0.8, "penalty": 1.0}
SCALED = {"scale_rewards": True}
FALLING = {"entropy_reference": "feasible", "entropy_ramp": 50_000}


def held(target: float, lever: str = "share") -> dict[str, Any]:
    """Return a controller that holds the acceptance rate, by a share of up to a half unless by the entropy."""
    limits = {"share_range": (0.02, 0.5)} if lever == "share" else {}
    return {"acceptance_target": target, "acceptance_lever": lever} | limits


def fixed(temperature: float) -> dict[str, Any]:
    """Return a temperature that is not tuned and so aims at no entropy."""
    return {"temperature": temperature, "entropy_target": None}


ON_RAW_OBSERVATIONS: dict[str, Idea] = {
    # Where a tuned temperature starts; from 0.1 is the reference of all others.
    "temperature-from-1": Idea(LEARNING, {"initial_temperature": 1.0}),
    "temperature-from-0.1": Idea(LEARNING, {}),
    "temperature-from-0.01": Idea(LEARNING, {"initial_temperature": 0.01}),
    # Whose entropy, and how much of it.
    "entropy-of-feasible-set": Idea(LEARNING, {"entropy_reference": "feasible"}),
    "entropy-of-truncated-policy": Idea(LEARNING, {"entropy_of": "truncated"}),
    "entropy-falling-to-feasible-set": Idea(("reacher", "halfcheetah", "hopper", "bss3z"), FALLING),
    # Validity without a schedule.
    "acceptance-target-0.97": Idea(LEARNING, held(0.97)),
    "preferences-from-0.8": Idea(LEARNING, {"least_return_weight": 0.8}),
    "penalty-1-preferences-from-0.8": Idea(("reacher", "halfcheetah", "hopper", "bss3z"), NARROW),
    "penalty-1-preferences-from-0.8-entropy-falling": Idea(("reacher", "halfcheetah"), NARROW | FALLING),
    "one-preference": Idea(LEARNING, {"preference": (0.9, 0.1)}),
    # What acts at first, and when every proposal fails.
    "warm-up-in-box": Idea(("reacher", "bss3z"), {"warm_up": "box"}),
    "last-resort-ray": Idea(("reacher", "nsfnet"), {"last_resort": "ray"}),
    "last-resort-uniform": Idea(("nsfnet", "bss3z"), {"last_resort": "uniform"}),
    # A stronger base learner.
    "wide-networks": Idea(LEARNING, {"hidden": (512, 512)}),
    "learning-rate-0.001": Idea(LEARNING, {"learning_rate": 1e-3}),
    # Begin with what is known to be sensible.
    "start-of-task": Idea(RESOURCES, {"start": "task", "critic_lead": 0}),
    "start-of-task-critics-first": Idea(RESOURCES, {"start": "task"}),
}
ON_SCALED_OBSERVATIONS: dict[str, Idea] = {
    "scaled-observations": Idea(("halfcheetah", "bss3z", "bss5z"), {"start": "box"}),
    "scaled-observations-start-of-task": Idea(("reacher", *LOCOMOTION, *RESOURCES), {}),
    "scaled-rewards": Idea(("reacher", *LOCOMOTION, *RESOURCES), SCALED),
    "scaled-rewards-preferences-from-0.5": Idea(
        ("reacher", "halfcheetah"), SCALED | {"least_return_weight": 0.5}
    ),
    "scaled-rewards-preferences-from-0.8": Idea(
        ("reacher", "halfcheetah", "hopper", "hoppervel"), SCALED | {"least_return_weight": 0.8}
    ),
    "scaled-rewards-preferences-from-0.8-entropy-falling": Idea(
        ("reacher", "halfcheetah", "ant", *RESOURCES), SCALED | FALLING | {"least_return_weight": 0.8}
    ),
    "scaled-entropy-of-feasible-set": Idea(RESOURCES, {"entropy_reference": "feasible"}),
}
ON_FORMER: dict[str, Idea] = {
    "entropy-held-by-acceptance-0.99": Idea(
        ("reacher", "halfcheetah", "hopper", "ant"), held(0.99, "entropy")
    ),
    "share-held-by-acceptance-0.99": Idea(("halfcheetah", "ant"), held(0.99)),
    "discount-0.97": Idea(("halfcheetah", "hopper"), {"gamma": 0.97}),
    # 0.99 everywhere is scaled-rewards-preferences-from-0.8-entropy-falling, above.
    "discount-0.9": Idea(RESOURCES, {"gamma": 0.9}),
    "discount-0.5": Idea(("bss3z", "bss5z"), {"gamma": 0.5}),
    # Explore widely for longer: seeds of HalfCheetah that settle early stay where they are.
    "entropy-from-0": Idea(
        ("halfcheetah", "hopper", "ant"), {"entropy_at_first": 0.0, "entropy_ramp": 100_000}
    ),
    "entropy-from-0.5": Idea(("halfcheetah", "ant"), {"entropy_at_first": 0.5, "entropy_ramp": 100_000}),
    "temperature-fixed-0.1": Idea(("hopper", "ant"), fixed(0.1)),
    "temperature-fixed-0.2": Idea(("reacher", *LOCOMOTION, "bss5z"), fixed(0.2)),
    "temperature-fixed-0.3": Idea(LOCOMOTION, fixed(0.3)),
    "temperature-fixed-0.5": Idea(("halfcheetah",), fixed(0.5)),
    # Nats of entropy per dimension, where the usual target is minus one.
    "half-a-nat": Idea(("reacher", *LOCOMOTION, *RESOURCES), {"entropy_target": -0.5}),
    "quarter-of-a-nat": Idea(("halfcheetah",), {"entropy_target": -0.25}),
    # What helped HalfCheetah and what helped Ant, together; with a share that is only lowered it is the default.
    "half-a-nat-share-held-by-acceptance-0.99": Idea(
        ("reacher", "halfcheetah", "hopper", "ant"), {"entropy_target": -0.5} | held(0.99)
    ),
    "supremum": Idea(("reacher", "halfcheetah"), {"policy_preferences": 4, "snapshots": 4}),
    # A stronger base learner.
    "three-step-returns": Idea(("reacher", "halfcheetah", "hopper", "bss3z"), {"return_steps": 3}),
    "value-bins-101": Idea(("reacher", "halfcheetah", "hopper", "bss3z"), {"value_bins": 101}),
    "networks-512": Idea(("halfcheetah", "ant"), {"hidden": (512, 512)}),
    # Validity where the feasible set is a small part of the box.
    "penalty-1": Idea(("halfcheetah", "ant"), {"penalty": 1.0}),
    # Noise of single updates, which an average over many does not have.
    "averaged-policy": Idea(("reacher", "halfcheetah", "hopper", "nsfnet", "bss5z"), {"averaging": 2_000}),
    # Explore less around a start that is good already.
    "three-nats": Idea(("nsfnet",), {"entropy_target": -3.0}),
    "five-nats": Idea(("nsfnet",), {"entropy_target": -5.0}),
    "learning-rate-0.0001": Idea(("nsfnet", "halfcheetah"), {"learning_rate": 1e-4}),
}
"""Ideas that change one thing of the former default, or two that helped by themselves."""
LIKE_RIVALS = {"evaluate_every": 5_000, "environments": 16}
"""As `rivals` on a GPU, whose 30,000 steps are the default's to compare with, wherever the trial runs."""
ON_DEFAULT: dict[str, Idea] = {
    # A stronger base learner.
    # With one preference for a whole batch normalised critics would not see it.
    "preference-per-sample": Idea(("reacher", "halfcheetah"), {"preference_per_sample": True}, LIKE_RIVALS),
    "batch-normalised-critics": Idea(
        ("reacher", "halfcheetah"), {"preference_per_sample": True, "batch_normalised": True}, LIKE_RIVALS
    ),
}
"""Ideas on the default."""
IDEAS = {
    **{name: idea.on(RAW) for name, idea in ON_RAW_OBSERVATIONS.items()},
    **{name: idea.on(PLAIN) for name, idea in ON_SCALED_OBSERVATIONS.items()},
    **{name: idea.on(FORMER) for name, idea in ON_FORMER.items()},
    **ON_DEFAULT,
}


def idea_cells() -> Iterator[Cell]:
    """Return every idea on each of its tasks."""
    for variant, idea in IDEAS.items():
        for task in idea.tasks:
            steps = STEPS[task]
            training: dict[str, Any] = {"capacity": 2 * steps}
            if task in EVALUATE_EVERY:
                training["evaluate_every"] = EVALUATE_EVERY[task]
            training |= idea.training
            yield Cell(
                task,
                "aram",
                "default",
                steps,
                variant=variant,
                settings=pairs(idea.settings),
                training=pairs(training),
                final_episodes=FINAL_EPISODES.get(task, 100),
            )
