"""`inbounds evaluate`: the paper's protocol on a run, its front of preferences, what an action costs."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich import box
from rich.table import Table
from rich.text import Text

from inbounds.cli.options import prepare_device, started_device
from inbounds.cli.terminal import Terminal
from inbounds.deploy.export import EVALUATION
from inbounds.limits import require_whole
from inbounds.storage.files import write_json
from inbounds.storage.sealed_arrays import POLICY_FILES, checksum
from inbounds.tasks.named_tasks import task_behind, task_of_run
from inbounds.training.record import RunFolder
from inbounds.training.summary import two_digits


@dataclasses.dataclass(frozen=True)
class Options:
    """Measure trained policies by the paper's protocol, on episodes that training has not seen.

    The return is that of the deterministic action after projection; the valid action rate is the feasible
    fraction of 100 raw samples at every visited state. Numbers are printed and written to RUN/evaluation.json.
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...] [TASK]")]
    """Run folders, or folders above them; behind them FILE.py:TASK or MODULE:TASK, if the task is your own, or the task
    of the C simulator, if they were trained on MJX."""
    task: Annotated[str | None, tyro.conf.arg(metavar="FILE.py:TASK|MODULE:TASK")] = None
    """The same as TASK behind the run folders."""
    policy: Literal["last", "best"] = "last"
    """The last policy of a run, or that of each seed's best evaluation."""
    episodes: int = 100
    """Episodes per seed."""
    preference: tuple[float, float] | None = None
    """Weights of return and constraint at which a preference-conditioned policy is evaluated; by default the run's."""
    sweep: bool = True
    """Evaluate a preference-conditioned policy over a grid of preferences and suggest one to deploy."""
    sweep_episodes: int = 20
    """Episodes per seed and preference of the sweep."""
    against: Annotated[str | None, tyro.conf.arg(metavar="REFERENCE")] = None
    """Also play the same episodes with a reference policy of the task (uniform, interior, never-moving, constant)."""
    against_episodes: int = 1_000
    """Common episodes of that comparison."""
    timing: bool = True
    """Time single actions, with and without the environment's step."""
    actions: int = 2_000
    """Actions that are timed."""
    seed: int | None = None
    """Evaluate this seed of the run alone."""
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|gpu")] = None
    """Where to compute; by default what JAX finds."""


def run(arguments: list[str]) -> int:
    """Evaluate every run and print what was found."""
    options = tyro.cli(Options, prog="inbounds evaluate", args=arguments)
    prepare_device(options.device)
    started_device(options.device)
    from inbounds.errors import ConfigurationError
    from inbounds.evaluation.trained import TrainedRun, run_folders

    if not options.runs:
        raise ConfigurationError("which run? Give its folder: inbounds evaluate runs/demo.")
    counts = {"sweep_episodes": options.sweep_episodes, "actions": options.actions}
    require_whole(1, episodes=options.episodes, **counts)
    require_whole(2, against_episodes=options.against_episodes)  # one gives no confidence interval
    terminal = Terminal()
    runs, own = task_behind(options.runs, options.task)
    for folder in run_folders(list(runs)):
        place = folder.absolute()
        with contextlib.chdir("."):  # the task may change the working directory
            task = task_of_run(folder, RunFolder(folder).config()["task"], own)
            opened = TrainedRun.open(place, task, policy=options.policy)
            chosen = opened if options.seed is None else opened.only(options.seed)
            evaluate_one(terminal, chosen, options)
        terminal.say(f"wrote {folder / EVALUATION}")
    return 0


def evaluate_one(terminal: Terminal, opened: Any, options: Options) -> None:
    """Evaluate one run, print its tables and write its file."""
    from inbounds.evaluation.inference import time_inference
    from inbounds.evaluation.protocol import (
        evaluate_run,
        has_preferences,
        suggested_preference,
        sweep_preferences,
    )
    from inbounds.training.record import provenance

    final = evaluate_run(opened, options.episodes, options.preference)
    written: dict[str, Any] = {"final": final.as_json(), "provenance": provenance()}
    policy = opened.folder.path / POLICY_FILES[options.policy]
    if policy.is_file():
        written["policy_sha256"] = checksum(policy.read_bytes())
    terminal.print(final_table(opened, final))
    if options.sweep and has_preferences(opened):
        points = sweep_preferences(opened, options.sweep_episodes)
        chosen = suggested_preference(points)
        terminal.print(front_table(points, chosen))
        terminal.say(
            f"suggested preference to deploy: {chosen.preference[0]:g} {chosen.preference[1]:g} "
            f"(the most valid of those whose return is as good as the best)"
        )
        written["front"] = {"points": [list(point) for point in points], "suggested": list(chosen.preference)}
    elif options.sweep:
        terminal.print("no sweep: this policy was trained for one preference.")
    if options.against is not None:
        from inbounds.evaluation.protocol import compare_with_reference

        paired = compare_with_reference(opened, options.against, options.against_episodes, options.preference)
        low, high = paired.interval
        written["against"] = paired.as_json()
        terminal.say(
            f"against {paired.reference} ({paired.reference_mean:.6g}) on {options.against_episodes:,} common "
            f"episodes: {paired.mean:+.4g} (95 % interval {low:+.4g} to {high:+.4g}), {paired.verdict}"
        )
    if options.timing:
        timed = time_inference(opened, options.preference, options.actions)
        written["inference"] = timed.as_json()
        terminal.say(
            f"one action: {timed.median * 1e6:.0f} us median, {timed.mean * 1e6:.0f} us mean, "
            f"{timed.slowest_percent * 1e6:.0f} us at the 99th percentile; with the environment's step "
            f"{timed.with_step * 1e6:.0f} us ({timed.path}, one at a time, {timed.actions:,} actions)"
        )
    write_json(opened.folder.path / EVALUATION, written)


def final_table(opened: Any, final: Any) -> Table:
    """Return one row per seed and one for all."""
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"{opened.task.name}, {opened.folder.path.name}: {final.episodes} episodes per seed at "
        f"preference {final.preference[0]:g} {final.preference[1]:g}",
        title_justify="left",
    )
    for heading in ("seed", "return", "sd", "valid rate", "mean valid", "projected", "in training"):
        table.add_column(heading, justify="right", no_wrap=True)
    calls = final.solver_calls
    training = calls.training_total()
    for index, seed in enumerate(final.seeds):
        table.add_row(
            str(seed),
            f"{final.returns[index].mean():.5g}",
            f"{final.returns[index].std():.3g}",
            f"{final.valid_action_rate[index]:.4f}",
            f"{final.deterministic_valid_rate[index]:.4f}",
            f"{calls.evaluation[index]:,}",
            f"{training[index]:,}" if index < len(training) else "unknown",
        )
    means = final.returns.mean(axis=1)
    if len(means) > 1:
        table.add_row(
            Text("mean ± sd", "bold"),
            Text(f"{means.mean():.5g} ± {means.std(ddof=1):.3g}", "bold"),
            "",
            f"{final.valid_action_rate.mean():.4f} ± {final.valid_action_rate.std(ddof=1):.2g}",
            f"{final.deterministic_valid_rate.mean():.4f}",
            f"{np.mean(calls.evaluation):,.0f}",
            f"{np.mean(training):,.0f}" if training else "unknown",
        )
    table.caption = (
        f"sd: over episodes; mean valid: fraction of states whose raw deterministic action is feasible; projected: "
        f"here, and in training. Worst violation of an executed action, in float64: {max(final.worst_violation, 0.0):g}"
    )
    table.caption_justify = "left"
    return table


def front_table(points: list[Any], chosen: Any) -> Table:
    """Return the sweep with its non-dominated points marked."""
    from inbounds.evaluation.protocol import is_on_front

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title="return versus validity, one policy", title_justify="left"
    )
    for heading in ("preference", "return", "valid action rate", "on the front", "suggested"):
        table.add_column(heading, justify="right")
    for point in points:
        table.add_row(
            f"{point.preference[0]:g} {point.preference[1]:g}",
            f"{point.mean_return:.5g} ± {two_digits(point.standard_error)}",
            f"{point.valid_action_rate:.4f}",
            "yes" if is_on_front(point, points) else "",
            "<--" if point == chosen else "",
        )
    return table
