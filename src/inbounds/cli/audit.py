"""`inbounds audit`: replay any policy on a task and certify that every action was feasible, or show where not."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich import box
from rich.table import Table

from inbounds.cli.options import prepare_device, started_device
from inbounds.cli.terminal import Terminal, require_writable
from inbounds.errors import InboundsError, InvalidInputError
from inbounds.storage.files import write_json, write_text
from inbounds.tasks.named_tasks import METAVAR, named_task


@dataclasses.dataclass(frozen=True)
class Options:
    """Replay a policy and check every action by the task's constraint, in float64, with no tolerance.

    The exit status is 0 if no action violated the constraint, 1 if one did, and 2 if nothing could be checked.
    """

    policy: Annotated[
        tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|FOLDER|FILE.onnx|FILE.zip|MODULE:CALLABLE")
    ]
    """A run or exported folder, an ONNX file, a zip of stable-baselines3 (opened in a process of its own), or a
    function of an observation, as module:callable or file.py:callable."""
    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar=METAVAR)]
    """Name of the task (`inbounds list tasks`), or where to import your own from."""
    steps: int = 10_000
    """Actions to check."""
    episodes: int | None = None
    """Stop after so many whole episodes."""
    seed: int = 0
    """Seed of the environment and of the policy's draws."""
    deterministic: bool = False
    """Ask for the deterministic action."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Preference of a preference-conditioned policy."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Write certificate.json and certificate.html there."""
    interpreter: Annotated[str | None, tyro.conf.arg(metavar="PYTHON")] = None
    """A Python that has stable-baselines3; by default that of `make peers`."""


def run(arguments: list[str]) -> int:
    """Audit one policy and return the exit status."""
    options = tyro.cli(Options, prog="inbounds audit", args=arguments)
    prepare_device("cpu")
    started_device()
    from inbounds.auditing.audit import audit

    if options.out is not None:
        require_writable(options.out / "certificate.json")
    with nothing_certified():
        certificate = audit(
            options.policy,
            named_task(options.task),
            steps=options.steps,
            episodes=options.episodes,
            seed=options.seed,
            deterministic=options.deterministic,
            preference=options.preference,
            interpreter=options.interpreter,
        )
    terminal = Terminal()
    show(terminal, certificate)
    if options.out is not None:
        from inbounds.report.certificate import page

        write_json(options.out / "certificate.json", certificate.as_json())
        write_text(options.out / "certificate.html", page(certificate))
        terminal.say(f"wrote {options.out / 'certificate.json'} and {options.out / 'certificate.html'}")
    return 0 if certificate.is_passed else 1


@contextlib.contextmanager
def nothing_certified() -> Iterator[None]:
    """Turn whatever the code of a policy or of a task raises into an error of ours.

    Its status must be neither that of a verdict nor, by `sys.exit(0)`, that of a policy that passed.
    """
    try:
        yield
    except (InboundsError, OSError):
        raise
    except (Exception, SystemExit) as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise InvalidInputError(
            f"nothing was certified: {type(error).__name__} ({error}) in {place.filename}, line {place.lineno}. "
            f"Correct the policy or the task, and audit again."
        ) from error


def show(terminal: Terminal, certificate: Any) -> None:
    """Print the certificate and its verdict."""
    from inbounds.report.certificate import rows

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows(certificate):
        table.add_row(name, value)
    terminal.print(table)
    if certificate.is_passed:
        terminal.print(f"passed: {certificate.steps:,} actions, every one of them feasible")
    else:
        terminal.say(
            f"failed: {certificate.violations:,} of {certificate.steps:,} actions violate the constraint. Put a "
            f"SafetyFilter before the actuator, or project (docs/safety_filter.md)."
        )
