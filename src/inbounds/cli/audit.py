"""`inbounds audit`: replay any policy on a task and certify that every action was feasible, or show where not."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich import box
from rich.table import Table

from inbounds.cli.options import prepare_device, started_device
from inbounds.cli.terminal import Terminal, require_writable
from inbounds.deploy.policy import read_plan
from inbounds.errors import ConfigurationError, InboundsError, InvalidInputError, quoted
from inbounds.storage.files import write_json, write_text
from inbounds.tasks.named_tasks import METAVAR, named_task, task_of_run

if TYPE_CHECKING:
    from inbounds.auditing.audit import Certificate

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.4rem; } h1 b { padding: .1rem .6rem; border-radius: .3rem; color: #fff; }
.passed { background: #1a7f37; } .failed { background: #b3261e; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d8dee4; vertical-align: top; }
th { font-weight: 600; width: 15rem; } td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
code { font-size: .85em; } footer { color: #59636e; font-size: .85rem; }
@media (max-width: 40rem) { body { margin: 1.5rem auto; } th, td { display: block; width: auto; padding: .3rem 0; }
 th { border: 0; padding-bottom: 0; } td { padding-top: 0; } }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3; }
 th, td { border-color: #30363d; } footer { color: #9198a1; } }
"""
"""The look of a certificate as a web page, which loads nothing from elsewhere."""


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
    behind: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar=f"[{METAVAR}]")] = None
    """Name of the task (`inbounds list tasks`), or where to import your own from; by default the one that a run or
    exported folder names."""
    task: Annotated[str | None, tyro.conf.arg(metavar=METAVAR)] = None
    """The same as TASK behind the policy."""
    steps: int = 10_000
    """Actions to check."""
    episodes: int | None = None
    """Stop after so many whole episodes."""
    seed: int = 0
    """Seed of the environment and of the policy's draws."""
    deterministic: bool = False
    """Ask for the deterministic action."""
    preference: tuple[float, float] | None = None
    """Preference of a preference-conditioned policy; by default that of the run or export."""
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
    from inbounds.auditing.audited_policy import PEERS

    here = Path.cwd()  # the task may change the working directory
    policy = from_here(options.policy)
    interpreter = options.interpreter or (str(PEERS) if PEERS.exists() else None)
    if interpreter is not None and os.sep in interpreter:  # others are looked for on the PATH
        interpreter = from_here(interpreter)
    if options.out is not None:
        require_writable(options.out / "certificate.json")
    with nothing_certified():
        certificate = audit(
            policy,
            named_task(audited_task(options)),
            steps=options.steps,
            episodes=options.episodes,
            seed=options.seed,
            deterministic=options.deterministic,
            preference=options.preference,
            interpreter=interpreter,
        )
    terminal = Terminal()
    show(terminal, certificate)
    if options.out is not None:
        write_json(here / options.out / "certificate.json", certificate.as_json())
        write_text(here / options.out / "certificate.html", page(certificate))
        terminal.say(f"wrote {options.out / 'certificate.json'} and {options.out / 'certificate.html'}")
    return 0 if certificate.is_passed else 1


def from_here(named: str) -> str:
    """Return what exists, a path or file.py:name, as it is found from any folder; other names stay as they are."""
    if os.path.exists(named):
        return str(Path(named).absolute())
    home, _, name = named.rpartition(":")
    return f"{Path(home).absolute()}:{name}" if os.path.isfile(home) else named


def audited_task(options: Options) -> str:
    """Return which task to audit on: the one that is given, or else the one of ours that a folder names."""
    given = {name for name in (options.behind, options.task) if name is not None}
    if len(given) > 1:
        raise ConfigurationError(f"several tasks are given: {', '.join(sorted(given))}. Name one.")
    if given:
        return given.pop()
    folder = Path(options.policy)
    if not folder.is_dir():
        raise ConfigurationError("which task? Name it behind the policy: inbounds audit POLICY TASK.")
    recorded = str(read_plan(folder).task)
    task_of_run(folder, recorded, None, f"inbounds audit {quoted(str(folder))} ")
    return recorded


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


def show(terminal: Terminal, certificate: Certificate) -> None:
    """Print the certificate and its verdict."""
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


def rows(certificate: Certificate) -> list[tuple[str, str]]:
    """Return what a certificate says, line by line, for terminals and pages alike."""
    found = [
        ("policy", f"{certificate.policy} ({certificate.kind})"),
        ("task", certificate.task),
        ("constraint", certificate.constraint),
        (
            "steps",
            f"{certificate.steps:,} in {certificate.episodes:,} whole episodes, seed {certificate.seed}",
        ),
        ("violations, no tolerance", f"{certificate.violations:,}{_invalid(certificate)}"),
        ("worst excess, float64", f"{certificate.worst_excess:.6g}"),
        ("violation rate, 95 % bound", f"{certificate.rate_bound:.3g}"),
        ("acceptance", _or_unknown(certificate.acceptance, ".4f")),
        ("projected by the policy", _or_unknown(certificate.own_projections, ",")),
        ("interventions of the audit", f"{certificate.interventions:,}"),
        ("mean return", _or_unknown(certificate.mean_return, ".6g")),
        ("time per action", _latency(certificate.latency)),
    ]
    if certificate.worst is not None:
        worst = certificate.worst
        found.append(("worst action", f"step {worst.step}, episode {worst.episode}: {worst.reason}"))
    found += [("note", note) for note in certificate.notes]
    if certificate.digest is not None:
        found.append(("SHA-256 of the policy", certificate.digest))
    found.append(("SHA-256 of the constraint", certificate.constraint_digest))
    return found


def page(certificate: Certificate) -> str:
    """Return the whole page; every word of the policy's origin is escaped."""
    verdict = "passed" if certificate.is_passed else "failed"
    lines = "\n".join(
        f"<tr><th>{html.escape(name)}</th><td>{_shown(name, value)}</td></tr>"
        for name, value in rows(certificate)
    )
    made = certificate.provenance
    origin = html.escape(
        f"inbounds {made.get('inbounds')}, Python {made.get('python')}, {made.get('processor')}, "
        f"{made.get('started')}"
    )
    title = html.escape(f"Audit of {certificate.policy} on {certificate.task}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width"><title>{title}: {verdict}</title>\n'
        f"<style>{STYLE}</style></head><body>\n"
        f'<h1>{title} <b class="{verdict}">{verdict}</b></h1>\n<table>\n{lines}\n</table>\n'
        f"<footer>{origin}. An action is feasible if g(s, a) ≤ 0 in float64. The bound assumes independent steps; "
        f"it says nothing about states that were not visited.</footer>\n</body></html>\n"
    )


def _shown(name: str, value: str) -> str:
    text = html.escape(value)
    if name == "constraint":
        text = text.replace("&lt;=", "≤").replace("&gt;=", "≥")
    return f"<code>{text}</code>" if name == "constraint" or name.startswith("SHA-256") else text


def _invalid(certificate: Certificate) -> str:
    return f" ({certificate.invalid_actions:,} of them not finite)" if certificate.invalid_actions else ""


def _or_unknown(value: Any, form: str) -> str:
    return "not known" if value is None else format(value, form)


def _latency(latency: dict[str, float]) -> str:
    return ", ".join(f"{name} {value * 1e6:.0f} µs" for name, value in latency.items())
