"""`inbounds export`: one folder with a policy that cannot leave its constraint, for ONNX and for numpy alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from inbounds.cli.terminal import Terminal


@dataclasses.dataclass(frozen=True)
class Options:
    """Write a policy as policy.onnx, with its constraint inside the graph, and as policy.safetensors + policy.json.

    The graph takes an observation, noise, and where they matter a preference and the previous action; what it
    returns is feasible by construction. `inbounds.load` reads the folder with numpy alone.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """The folder of a run."""
    out: Path | None = None
    """Where to write; by default the folder `exported` inside the run."""
    seed: int | None = None
    """Which of the trained seeds; the first one by default."""
    proposals: int | None = None
    """How many proposals the graph tests per call; by default as many as in training."""
    preference: tuple[float, float] | None = None
    """Weights of return and validity that are used where none are given later."""
    check: int = 256
    """Random states in which graph and numpy policy are compared after writing; 0 leaves it out."""


def run(arguments: list[str]) -> int:
    """Export one policy, compare it with the original, and say what was written."""
    options = tyro.cli(Options, prog="inbounds export", args=arguments)
    from inbounds.deploy.export import export
    from inbounds.deploy.export_check import compare

    terminal = Terminal()
    written = export(
        options.run,
        options.out,
        seed=options.seed,
        proposals=options.proposals,
        preference=options.preference,
    )
    files, _, promise = f"wrote {written}".rpartition("\n")
    terminal.say(files)
    terminal.say(promise)
    if options.check < 1 or not written.is_feasible_by_construction:
        return 0
    found = compare(written.path, options.check)
    terminal.say(
        f"compared graph and numpy policy in {found.states} random observations: {found.violations} violations in "
        f"float64, {found.projected} projections; rounding chose another feasible proposal in {found.other_choices}, "
        f"the other actions differ by at most {found.largest_difference:.1e} of the box."
        f"{drawn_empty(found.empty)}"
    )
    return 1 if found.violations else 0


def drawn_empty(count: int) -> str:
    """Return why random observations may leave no action, where some did: they need not occur in the task."""
    if not count:
        return ""
    return (
        f" In {count} of the observations no action is allowed, and both refuse; such numbers, as of a previous action "
        f"beyond the box, need not occur in the task, where an empty set is an error."
    )
