"""Which command runs; errors of the library and of the system become one sentence and an exit status."""

from __future__ import annotations

import difflib
import importlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from inbounds.cli.terminal import leave_output, shown
from inbounds.errors import InboundsError, explained


class Command(NamedTuple):
    """A command and where it is implemented."""

    summary: str
    module: str


COMMANDS = {
    "list": Command(
        "show the tasks with their constraints, the learners and the suites", "inbounds.cli.catalogue"
    ),
    "train": Command("train a learner on a task and write a run folder", "inbounds.cli.train"),
    "evaluate": Command("measure a trained policy by the paper's protocol", "inbounds.cli.evaluate"),
    "render": Command("film a trained or a reference policy", "inbounds.cli.render"),
    "benchmark": Command(
        "run a suite of tasks x learners x seeds, and go on where it stopped", "inbounds.cli.benchmark"
    ),
    "report": Command("turn run folders and results into one web page and figures", "inbounds.cli.report"),
    "tune": Command("search hyper-parameters with Optuna", "inbounds.cli.tune"),
    "export": Command("write a policy that runs without JAX", "inbounds.cli.export"),
    "audit": Command("replay a deployed policy and certify that it stays feasible", "inbounds.cli.audit"),
}


TRACEBACK = "To see the traceback, put PYTHONDEVMODE=1 before the command."
"""Python's development mode, which needs no setting of ours."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 done, 1 failed, 2 refused or impossible, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show, such as a path in no encoding
            stream.reconfigure(errors="backslashreplace")
    given, status = list(sys.argv[1:] if arguments is None else arguments), 0
    try:
        status = answer(given)
        sys.stdout.flush()
        return status
    except InboundsError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        return fail("interrupted.", status=130)
    except BrokenPipeError:
        # The reader has seen enough (`inbounds --help | head`).
        leave_output()
        return status
    except OSError as error:
        leave_output()
        return fail(explained(error))
    except MemoryError as error:
        return fail(f"not enough memory ({error or 'nothing is left'}). Ask for less, or free some.")
    except (Exception, SystemExit) as error:
        from inbounds.tasks.named_tasks import failure, own_place

        if own_place(error) is not None and not sys.flags.dev_mode:
            return fail(f"your code {failure(error)}. Correct it there. {TRACEBACK}")
        if isinstance(error, SystemExit):  # the argument parser has printed its message
            return error.code if isinstance(error.code, int) else 2
        raise


def answer(given: list[str]) -> int:
    """Run the command that the arguments name."""
    if not given or given[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if given[0] == "--version":
        from inbounds import __version__

        print(f"inbounds {__version__}")
        return 0
    if given[0] not in COMMANDS:
        nearest = difflib.get_close_matches(given[0], COMMANDS, n=1)
        suggestion = f" Did you mean '{nearest[0]}'?" if nearest else ""
        return fail(f"'{given[0]}' is not a command.{suggestion} Commands: {', '.join(COMMANDS)}.")
    run: Callable[[list[str]], int] = importlib.import_module(COMMANDS[given[0]].module).run
    return run(given[1:])


def overview() -> str:
    """Return what `inbounds --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    lines = [
        "inbounds: reinforcement learning in which every action satisfies its hard constraint.",
        "",
        "usage: inbounds COMMAND [OPTIONS]        inbounds COMMAND --help explains every option",
        "",
        *(f"  {name:{width}}{command.summary}" for name, command in COMMANDS.items()),
        "",
        "first steps:",
        "  inbounds train reacher --steps 20000 --out runs/demo     a few minutes on a laptop",
        "  inbounds train FILE.py:TASK                              the same on a task of your own",
        "  inbounds evaluate runs/demo                              the paper's protocol",
        "  inbounds report runs/demo                                one page to look at and to send around",
    ]
    return "\n".join(lines)


def fail(message: str, status: int = 2) -> int:
    """Print a message where errors belong and return the status."""
    print(f"inbounds: {shown(message)}", file=sys.stderr)
    return status
