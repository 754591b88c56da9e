"""Doors of policies that have left the lab: the run folder that numpy acts from, and its graph in onnxruntime."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import inbounds as ib
from benchmarks.attack.anchored_sets import Style, joined
from benchmarks.attack.effort import draw_mostly_quick
from benchmarks.attack.examination import OUTSIDE, ROOM_IN_SINGLE, constraint_of
from benchmarks.attack.ledger import Ledger
from benchmarks.attack.plain_sets import Leaf, reads_previous_action
from benchmarks.attack.sets import Drawn, States
from benchmarks.attack.witness import NOTHING, Journal, Pace
from inbounds.policies.heads import (
    AlongRay,
    Deterministic,
    DiagonalGaussian,
    Head,
    RadialGaussian,
    SquashedGaussian,
)
from inbounds.storage.sealed_arrays import meaning_of_run, write_sealed

STYLE = Style(largest_dimension=21, exponents=(2.0, 5.0, 30.0), most_members=3)
HEADS: tuple[Head, ...] = (
    *(SquashedGaussian(), SquashedGaussian(), Deterministic(), Deterministic(std=0.2)),
    *(DiagonalGaussian(), AlongRay(smooth=False), AlongRay(), RadialGaussian()),
)
CALLS = 600
LARGEST_INPUT = 1e4
"""Of an observation, where the network's answer is surely a number."""


class Deployed(NamedTuple):
    """A policy with a network that nobody trained."""

    drawn: Drawn
    folder: Path
    head: str


def deployed(rng: np.random.Generator, ledger: Ledger, folder: Path) -> Deployed | None:
    """Write the run of a random policy over a box around a random set."""
    drawn = draw_mostly_quick(rng, STYLE, 0.85)
    width = drawn.size * 10.0 ** rng.uniform(-1.0, 1.5)
    low, high = ((drawn.anchor + sign * width).astype(np.float32).astype(np.float64) for sign in (-1.0, 1.0))
    if not (np.isfinite([low, high]).all() and (low < high).all()):
        return None
    drawn.plain = joined("&", drawn.plain, Leaf("Box", {"low": low, "high": high}))
    constraint = constraint_of(ledger, rng, drawn)
    if constraint is None:
        return None
    head = HEADS[int(rng.integers(len(HEADS)))]
    observation_size = max(drawn.observation_size, 1)
    sizes = (observation_size, 8, head.outputs_per_entry * drawn.dimension)
    arrays: dict[str, NDArray[np.float32]] = {}
    for index, (inputs, size) in enumerate(itertools.pairwise(sizes)):
        weight = rng.standard_normal((1, inputs, size)) * (1.5 / np.sqrt(inputs))
        arrays[f"actor/{index}/weight"] = weight.astype(np.float32)
        arrays[f"actor/{index}/bias"] = (0.5 * rng.standard_normal((1, size))).astype(np.float32)
    head = dataclasses.replace(head, proposals=int(rng.choice([1, 3, 20])))
    if isinstance(head, DiagonalGaussian):
        arrays["log_std"] = np.zeros((1, drawn.dimension), np.float32)
    config = {
        "task": "attack",
        "observation_size": observation_size,
        "action_low": low.tolist(),
        "action_high": high.tolist(),
        "constraint": constraint.to_json(),
        "learner": {"name": "attack"},
        "head": head.to_json(),
        "training": {"seed": 0, "seeds": 1},
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    write_sealed(folder / "policy.safetensors", arrays, meaning_of_run(config))
    return Deployed(drawn, folder, head.kind)


def policy(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack `ib.load(...).act` in numpy."""
    with tempfile.TemporaryDirectory() as place:
        made = deployed(rng, ledger, Path(place) / "run")
        if made is None:
            return
        journal = Journal(ledger, f"{made.head}, numpy")
        loaded = ledger.call(lambda: ib.load(made.folder), cases=0)
        journal.judge_error(loaded, made.drawn.plain, NOTHING, None)
        if loaded.error is not None:
            return

        def act(observation: Any, previous: Any, is_deterministic: bool) -> Any:
            return loaded.value.act(observation, is_deterministic, previous_action=previous)

        asked(rng, journal, made, act)


def graph(rng: np.random.Generator, ledger: Ledger) -> None:
    """Attack the exported graph; it cannot raise, and answers NaN and -2 where it found nothing."""
    with tempfile.TemporaryDirectory() as place:
        made = deployed(rng, ledger, Path(place) / "run")
        if made is None:
            return
        journal, target = Journal(ledger, f"{made.head}, onnxruntime"), Path(place) / "exported"

        def opened() -> Any:
            import onnxruntime

            from inbounds.deploy.export_check import session

            onnxruntime.set_default_logger_severity(3)
            return ib.export(made.folder, target), session(target)

        written = ledger.call(opened, cases=0, limit=60.0)
        journal.judge_error(written, made.drawn.plain, NOTHING, None)
        if written.error is not None:
            return
        exported, session = written.value
        inputs = {entry.name for entry in session.get_inputs()}

        def act(observation: Any, previous: Any, is_deterministic: bool) -> Any:
            noise = rng.standard_normal((exported.proposals, made.drawn.dimension)).astype(np.float32)
            question = {
                "observation": observation,
                "noise": 0 * noise if is_deterministic else noise,
                "previous_action": previous,
            }
            action, accepted = session.run(None, {name: question[name] for name in inputs})
            if (int(accepted) == -2) != (not np.isfinite(action).all()):
                raise AssertionError(f"accepted={int(accepted)} beside the action {action}")
            return action

        asked(rng, journal, made, act, answers_nan=True)


def asked(
    rng: np.random.Generator, journal: Journal, made: Deployed, act: Any, *, answers_nan: bool = False
) -> None:
    """Act in many states and judge what comes out."""
    drawn, ledger, pace = made.drawn, journal.ledger, Pace(journal.ledger)
    states = drawn.states(rng, CALLS, float(rng.choice([0.0, 0.2])))
    observations = rng.standard_normal((CALLS, 1)) if states.observation is None else states.observation
    reads = reads_previous_action(drawn.plain)
    for row in range(CALLS):
        if pace.is_over():
            break
        here = states.take([row])
        previous = None if here.previous_action is None else here.previous_action[0]
        observation = observations[row].copy()
        is_sound = rng.random() > 0.02
        if not is_sound:
            observation[rng.integers(len(observation))] = rng.choice([np.nan, np.inf])
        given = previous if reads else np.zeros(drawn.dimension)
        answer = ledger.call(lambda o=observation, p=given: act(o, p, bool(rng.random() < 0.3)))

        def is_answerable(
            here: States = here, observation: Any = observation, is_sound: bool = is_sound
        ) -> bool:
            is_small = is_sound and bool(np.abs(observation).max() < LARGEST_INPUT)
            return (
                is_small and drawn.is_moderate and bool(drawn.room(here, 1, np.float32)[0] > ROOM_IN_SINGLE)
            )

        journal.judge_error(answer, drawn.plain, here, None, is_answerable=is_answerable)
        if answer.error is not None:
            continue
        action = np.asarray(answer.value)
        if answers_nan and not np.isfinite(action).all() and not is_answerable():
            ledger.refused()
        elif not is_sound:
            journal.note(OUTSIDE, drawn.plain, here, None, f"{action} answers the observation {observation}")
        else:
            journal.add(drawn.plain, here, None, action, "was returned")
    journal.judge()
