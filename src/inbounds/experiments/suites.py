"""The suites as data: which experiments answer which question, and which figure or table of the paper that is."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, InvalidInputError, UnknownNameError
from inbounds.experiments.experiment import Cell, pairs
from inbounds.reading import require_name
from inbounds.tasks.named_tasks import as_task, imported, is_import_path, task_of_cell

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

PAPER_TASKS = ("reacher", "halfcheetah", "hopper", "hoppervel", "ant", "nsfnet", "bss3z", "bss5z")
STEPS = {
    "reacher": 300_000,
    **dict.fromkeys(("halfcheetah", "hopper", "hoppervel", "ant"), 1_000_000),
    **dict.fromkeys(("nsfnet", "nsfnet20d", "bss3z", "bss5z", "polytope50"), 500_000),
    "allocation": 100_000,
}
"""Environment steps per task. The paper states none: 1.5M is its code's default; a million is what locomotion
is usually given, and the others are shorter because their curves are flat by then."""
EVALUATION: dict[str, dict[str, int]] = {
    **{task: {"evaluate_every": 10_000} for task in ("reacher", "bss3z", "bss5z")},
    **{
        task: {"evaluate_every": 50_000}
        for task in ("halfcheetah", "hopper", "hoppervel", "ant", "nsfnet", "nsfnet20d")
    },
}
"""How often policies are evaluated while they learn: less often where that takes long."""
CHECKPOINT_EVERY = 500_000
"""A checkpoint holds the replay, up to gigabytes, and an experiment takes minutes on a GPU."""
BASELINES = ("dpre", "spre", "nfwpo", "flowpg", "focops")
"""Methods with numbers in the paper's tables, cheapest to train first."""
OTHERS = (
    "sosac",
    "artd3",
    "td3",
    "sac",
    "optlayer",
    "appropt",
    "dalpha",
    "drad",
    "srad",
    "iar",
    "aram-discrete",
)
"""Methods that the paper names, or that explain the others."""
ONLY_ON = {"appropt": ("bss3z", "bss5z"), "iar": ("bss3z", "bss5z"), "aram-discrete": ("bss3z", "bss5z")}
"""Learners that are defined for some sets only: a total to share out, or actions that are whole numbers."""
PREFERENCES = ((0.9, 0.1), (0.5, 0.5), (0.1, 0.9))


@dataclasses.dataclass(frozen=True)
class Suite:
    """A question and the experiments that answer it; `inbounds benchmark FILE.py:SUITE` runs one that a user writes."""

    name: str
    """Of the folders that hold its runs and its results."""
    question: str
    build: Callable[[], Iterable[Cell]]
    """Returns the experiments."""
    shows: str = "not in the paper"
    """Where the paper shows it."""
    tasks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The suite's own tasks by the name that experiments use: an `inbounds.Task`, or a function that returns one."""
    learners: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The suite's own learners by name: a class, or a function that takes settings."""

    def cells(self) -> list[Cell]:
        """Return the experiments, the most informative first."""
        return list(self.build())

    def task(self, name: str) -> Task:
        """Return the task of an experiment, one of its own or one of ours."""
        return as_task(self.tasks[name], name) if name in self.tasks else task_of_cell(name)


def _paper() -> Iterator[Cell]:
    for preset in ("default", "paper"):
        for task in PAPER_TASKS:
            yield _full(task, "aram", preset)
    for learner in (*BASELINES, *OTHERS):
        for task in ONLY_ON.get(learner, PAPER_TASKS):
            yield _full(task, learner, "paper")


def _full(task: str, learner: str, preset: str) -> Cell:
    how = {**EVALUATION[task], "checkpoint_every": CHECKPOINT_EVERY}
    return Cell(task, learner, preset, STEPS[task], training=pairs(how))


def _variant(task: str, learner: str, variant: str, settings: dict[str, Any]) -> Cell:
    return Cell(task, learner, "paper", STEPS[task], variant=variant, settings=pairs(settings))


def _scalability() -> Iterator[Cell]:
    for preset in ("default", "paper"):
        yield _full("nsfnet20d", "aram", preset)
    for learner in BASELINES:
        yield _full("nsfnet20d", learner, "paper")


def _ablation_morl() -> Iterator[Cell]:
    for task in ("halfcheetah", "ant"):
        yield Cell(task, "aram", "paper", STEPS[task])
        for preference in PREFERENCES:
            cell = _variant(task, "sosac", f"preference-{preference[0]:g}", {"preference": preference})
            yield dataclasses.replace(cell, training=pairs({"preference": preference}))


def _sensitivity_penalty() -> Iterator[Cell]:
    for task in ("hoppervel", "ant"):
        for penalty in (0.05, 0.1, 0.2):
            yield _variant(task, "aram", f"penalty-{penalty:g}", {"penalty": penalty})


def _target_distribution() -> Iterator[Cell]:
    for task in ("halfcheetah", "reacher"):
        for variant, df in (("gaussian", None), ("student", 5.0)):
            yield _variant(task, "aram", f"target-{variant}", {"student_df": df})


REVIEWERS_VARIANTS: dict[str, dict[str, Any]] = {
    "reference": {},
    "no-augmented-mdp": {"self_loops": "none", "eta_decay": 1.0},
    "single-buffer": {"dual_replay": False, "eta_decay": 1.0},
    "no-rejection": {"proposals": 1},
    "eta-constant": {"eta_decay": 1.0},
    "eta-decay-0.99": {"eta_decay": 0.99},
    "eta-start-0.4": {"eta": 0.4},
    "plain-policy-loss": {"preference_samples": 1, "q_snapshots": 0},
}
"""What reviewers of the paper asked for, as settings of ARAM; acceptance during training and the sweep over
preferences are recorded by every experiment."""


def _reviewers() -> Iterator[Cell]:
    for task in ("halfcheetah", "reacher"):
        for variant, settings in REVIEWERS_VARIANTS.items():
            yield _variant(task, "aram", variant, settings)
        for learner in ("artd3", "td3"):
            yield Cell(task, learner, "paper", STEPS[task])
    for learner, preset in (("aram", "default"), ("aram", "paper"), ("dpre", "paper"), ("sac", "paper")):
        yield Cell("polytope50", learner, preset, STEPS["polytope50"])


def _baselines() -> Iterator[Cell]:
    often = pairs({"evaluate_every": 5_000, "capacity": 100_000})
    for task in ("reacher", "bss3z", "halfcheetah", "nsfnet"):
        for preset in ("default", "paper"):
            yield Cell(task, "aram", preset, 30_000, seeds=3, training=often)
        for learner in (*BASELINES, *OTHERS):
            if task in ONLY_ON.get(learner, PAPER_TASKS):
                yield Cell(task, learner, "paper", 30_000, seeds=3, training=often)


def _wall_clock() -> Iterator[Cell]:
    for task in PAPER_TASKS:
        for learner, preset in (
            ("aram", "default"),
            ("aram", "paper"),
            *((baseline, "paper") for baseline in BASELINES),
        ):
            yield Cell(task, learner, preset, 50_000, seeds=1, final_episodes=10)


SMALL: dict[str, Any] = {
    **{"hidden": (32, 32), "batch_size": 64, "layers": 2, "rollout": 256},
    **{"flow_steps": 300, "flow_samples": 2_000, "flow_hidden": (16, 16), "flow_layers": 2},
}
"""What makes learners quick that have such settings."""


def _small(name: str) -> dict[str, Any]:
    from inbounds.learners.registry import LEARNERS, make_learner

    if name not in LEARNERS:
        return {}
    fields = {field.name for field in dataclasses.fields(make_learner(name))}  # type: ignore[arg-type]
    return {setting: value for setting, value in SMALL.items() if setting in fields}


def _discrete() -> Iterator[Cell]:
    for task in ("allocation", "bss3z"):
        for learner in ("aram-discrete", "iar"):
            yield Cell(task, learner, "default", STEPS["allocation"])


LITERATURE_TASKS = (
    *("reachershell", "reachertip", "halfcheetahangular", "hoppersine", "hopperleast"),
    *("walker2dpower", "walker2dsine"),
)


def _literature() -> Iterator[Cell]:
    seldom = pairs({"evaluate_every": 25_000})
    for learner, preset in (
        ("aram", "default"),
        *((name, "paper") for name in ("spre", "dpre", "sac", "td3")),
    ):
        for task in LITERATURE_TASKS:
            yield Cell(task, learner, preset, 300_000, training=seldom)


def _smoke() -> Iterator[Cell]:
    quick = pairs({"evaluate_every": 500, "episodes": 10, "environments": 1, "capacity": 20_000})
    longest = [
        ("bss3z", learner) for learner in ("aram", *ONLY_ON)
    ]  # first, so that none is left alone at the end
    others = [("reacher", learner) for learner in ("aram", *BASELINES, *OTHERS) if learner not in ONLY_ON]
    for task, learner in longest + others:
        settings = pairs(_small(learner))
        yield Cell(
            task, learner, "default", 2_000, seeds=2, settings=settings, training=quick, final_episodes=10
        )


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "paper",
            "How do the methods compare on the paper's eight tasks?",
            _paper,
            "Tables 2 to 5, Figures 3, 4 and 7 to 10",
        ),
        Suite("scalability", "Does ARAM scale to 20 flows and 30 links?", _scalability, "Figure 14"),
        Suite(
            "ablation-morl",
            "What does learning for all preferences bring over one fixed preference?",
            _ablation_morl,
            "Figures 5 and 11",
        ),
        Suite(
            "sensitivity-penalty", "How much does the penalty K matter?", _sensitivity_penalty, "Figure 12"
        ),
        Suite(
            "target-distribution",
            "Does a heavy-tailed target help? (The paper does not name its task.)",
            _target_distribution,
            "Figure 13",
        ),
        Suite(
            "reviewers",
            "What did reviewers ask for: each ingredient switched off, schedules of eta, TD3 as base, 50 dimensions?",
            _reviewers,
        ),
        Suite(
            "baselines",
            "How do all methods compare after 30,000 steps of Reacher, BSS3z, HalfCheetah and NSFnet?",
            _baselines,
            "not in the paper: Figures 4, 7 and 8, the first steps of four tasks",
        ),
        Suite(
            "discrete",
            "Whole-number actions behind a membership test: ARAM with a categorical policy and IAR-A2C.",
            _discrete,
            "Table 1, in words only",
        ),
        Suite(
            "literature",
            "How do the strongest methods compare on the constraints of other papers?",
            _literature,
        ),
        Suite(
            "wall-clock",
            "How long does one seed alone take? Run it on an idle machine, one experiment at a time.",
            _wall_clock,
            "Figure 3, Table 3",
        ),
        Suite(
            "smoke", "Does everything work? Minutes on a laptop; its numbers mean nothing.", _smoke, "nothing"
        ),
    )
}


OWN_SUITE = "INBOUNDS_SUITE"
"""The environment variable by which a command tells its worker processes where the user's suite is imported from."""


def suite_by_name(name: str) -> Suite:
    """Return a suite of ours by its name, or a user's by where it is imported from."""
    if is_import_path(name):
        return imported_suite(name)
    if name not in SUITES:
        raise UnknownNameError(
            "suite", name, SUITES, "`inbounds list suites` explains them; your own is FILE.py:NAME."
        )
    return SUITES[name]


@functools.cache
def imported_suite(path: str) -> Suite:
    """Import a user's suite and add its learners to the registry; names of ours keep their meaning."""
    from inbounds.learners.registry import LEARNERS
    from inbounds.tasks.registry import names

    suite = imported(path)
    if not isinstance(suite, Suite):
        raise InvalidInputError(
            f"{path} is {type(suite).__name__}, not a suite. Name an inbounds.experiments.Suite."
        )
    remedy = "Choose another name."
    for kind, own, ours in (
        ("suite", [suite.name], SUITES),
        ("task", suite.tasks, names()),
        ("learner", suite.learners, LEARNERS),
    ):
        for name in own:
            if require_name(name, path, remedy) in ours:
                raise ConfigurationError(f"{path} names a {kind} '{name}', which is one of ours. {remedy}")
    for name, learner in suite.learners.items():
        LEARNERS[name] = learner
    return suite


def own_suite() -> Suite | None:
    """Return the user's suite that this process works for, as its environment tells; None for one of ours."""
    path = os.environ.get(OWN_SUITE)
    return imported_suite(path) if path else None


def available_cells(
    suite: Suite,
    tasks: tuple[str, ...] = (),
    learners: tuple[str, ...] = (),
    presets: tuple[str, ...] = (),
    variants: tuple[str, ...] = (),
) -> list[Cell]:
    """Return the experiments whose learner exists here, limited to these tasks, learners, presets and variants."""
    from inbounds.learners.registry import LEARNERS

    cells = suite.cells()
    for kind, asked, known in (
        ("task", tasks, {cell.task for cell in cells}),
        ("learner", learners, {cell.learner for cell in cells}),
        ("preset", presets, {cell.preset for cell in cells}),
        ("variant", variants, {cell.variant for cell in cells if cell.variant}),
    ):
        if asked and not known:
            raise ConfigurationError(f"the suite {suite.name} has no {kind}s. Leave --{kind}s out.")
        for name in asked:
            if name not in known:
                raise UnknownNameError(kind, name, known, f"The suite {suite.name} has these.")
    found = [
        cell
        for cell in cells
        if (not tasks or cell.task in tasks)
        and (not learners or cell.learner in learners)
        and (not presets or cell.preset in presets)
        and (not variants or cell.variant in variants)
    ]
    if not found:
        raise ConfigurationError(
            f"the suite {suite.name} has each of these, but no experiment that is all of it. Leave out --tasks, "
            f"--learners, --presets or --variants."
        )
    return [cell for cell in found if cell.learner in LEARNERS]


def missing_learners(suite: Suite) -> list[str]:
    """Return the learners of a suite that this version does not have."""
    from inbounds.learners.registry import LEARNERS

    return sorted({cell.learner for cell in suite.cells()} - set(LEARNERS))
