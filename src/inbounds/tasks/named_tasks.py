"""Tasks as commands name them: ours by their name, a user's by where it is imported from."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import re
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError, InboundsError, InvalidInputError

if TYPE_CHECKING:
    from inbounds.tasks.task import Task

METAVAR = "TASK|FILE.py:TASK|MODULE:TASK"
REMEDY = "Name an inbounds.Task, or a function that returns one."


OWN_TASK = "INBOUNDS_TASK"
"""The environment variable by which a command tells its worker processes where the user's task is imported from."""


def is_import_path(name: str) -> bool:
    """Tell whether a task is named by where it is imported from."""
    return ":" in name


def named_task(name: str) -> Task:
    """Return a task by its name, or import one; a function that makes a task is called."""
    if not is_import_path(name):
        from inbounds.tasks.registry import make, names

        if name not in names() and os.path.isdir(name.replace("\0", "\\0")):
            raise InvalidInputError(
                f"{name} is a folder and not a task. Name the folder of a run first and its task behind it "
                f"(inbounds audit RUN TASK); to go on with a run: inbounds train --resume RUN."
            )
        return make(name)
    return as_task(imported(name), name)


def as_task(found: Any, name: str) -> Task:
    """Return what a user calls a task, or what the user's function returns; anything else is refused."""
    from inbounds.tasks.task import Task

    try:
        task: Any = found() if callable(found) and not isinstance(found, Task) else found
    except InboundsError:
        raise
    except Exception as error:
        if (
            isinstance(error, TypeError)
            and error.__traceback__ is not None
            and not error.__traceback__.tb_next
        ):
            raise InvalidInputError(
                f"{name} cannot be called without arguments ({error}). {REMEDY}"
            ) from error
        raise InvalidInputError(f"{name} {failure(error)}. Correct it there.") from error
    if not isinstance(task, Task):
        raise InvalidInputError(f"{name} is {type(task).__name__}, not a task. {REMEDY}")
    return task


LIBRARY = f"{Path(__file__).parents[1]}{os.sep}"
PYTHON = f"{Path(os.__file__).parent}{os.sep}"
FRAME = re.compile(r'^ *File "(.+)", line (\d+), in ', re.MULTILINE)


def failure(error: BaseException) -> str:
    """Say what went wrong in the user's code, and where: the traceback would show ours first."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = own_place(error) or f"line {last.lineno} of {last.filename}"
    what = ": ".join([type(error).__name__, *str(error).splitlines()[:1]])
    return f"fails with {what} ({place})"


def own_place(error: BaseException) -> str | None:
    """Return the last line of the user's code on the way to an error; None if the library called none of it.

    What is installed as a package is not the user's, nor is what called the library. An error from another process has
    its way in its notes.
    """
    way = [*traceback.format_tb(error.__traceback__), *getattr(error, "__notes__", ())]
    frames = FRAME.findall("\n".join(way))
    inside = itertools.dropwhile(lambda frame: not frame[0].startswith(LIBRARY), frames)
    own = [(file, line) for file, line in inside if is_own(file)]
    return f"line {own[-1][1]} of {own[-1][0]}" if own else None


def is_own(file: str) -> bool:
    """Tell whether code is the user's: neither the library's, nor Python's, nor an installed package's."""
    is_installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return not (is_installed or file.startswith((LIBRARY, PYTHON, "<")))


def imported(path: str) -> Any:
    """Import "module:name" or "file.py:name"; only code that the user names is ever run.

    A file finds the modules beside it, as with `python file.py`, and both find those of the working directory, as with
    `python -m`. These folders come last on the path, and stay there for what is imported later and for other processes:
    a file of the user never replaces a module of the library's.
    """
    home, _, name = path.rpartition(":")
    beside = [Path(home).resolve().parent] if os.path.isfile(home) else []
    sys.path += [str(folder) for folder in (*beside, Path.cwd()) if str(folder) not in sys.path]
    try:
        if home.endswith(".py"):
            spec = importlib.util.spec_from_file_location(module_name(home), home)
            if spec is None or spec.loader is None:
                raise ImportError(f"{home} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # dataclasses look their own module up
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(home)
        value = module
        for part in name.split("."):
            value = getattr(value, part)
    except SyntaxError as error:
        raise InvalidInputError(
            f"'{path}' cannot be imported: line {error.lineno} of {error.filename} is not Python ({error.msg}). "
            f"Correct it."
        ) from error
    except SystemExit as error:
        raise InvalidInputError(
            f"'{path}' ends the program while it is imported. Move all statements but imports and definitions below "
            f"`if __name__ == '__main__':`."
        ) from error
    except (ImportError, AttributeError, OSError, ValueError) as error:
        remedy = "Write module:name or path/to/file.py:name, and run where it can be found."
        if isinstance(error, ImportError) and os.path.isfile(home):
            remedy = "Correct the file, or install what it imports."
        raise InvalidInputError(f"'{path}' cannot be imported ({error}). {remedy}") from error
    except InboundsError:
        raise
    except Exception as error:
        raise InvalidInputError(
            f"'{path}' {failure(error)} while it is imported. Correct it there."
        ) from error
    return value


def task_behind(runs: Sequence[Path], task: str | None) -> tuple[tuple[Path, ...], str | None]:
    """Split run folders from the task that may stand behind them instead of `--task`, as `train --resume` takes it."""
    from inbounds.tasks.registry import names

    def is_task(path: Path) -> bool:
        return (is_import_path(str(path)) or str(path) in names()) and not path.exists()

    behind = [str(path) for path in runs if is_task(path)]
    if len({*behind, *([] if task is None else [task])}) > 1:
        given = ", ".join(behind if task is None else [*behind, f"--task {task}"])
        raise ConfigurationError(f"several tasks are given: {given}. Name one, behind the run folders.")
    return tuple(path for path in runs if str(path) not in behind), behind[0] if behind else task


def module_name(file: str) -> str:
    """Return what a user's file is called as a module: never what another one is, which all would get instead."""
    own = Path(file).stem
    try:
        other = importlib.util.find_spec(own)
    except (ImportError, ValueError):
        other = None
    if other is None or (other.origin is not None and Path(other.origin).resolve() == Path(file).resolve()):
        return own
    return f"inbounds_own_{own}"


def label(name: str, task: Task) -> str:
    """Return what an experiment calls a task: ours by name, a user's so that it is never taken for one of ours."""
    if not is_import_path(name):
        return name
    return "-".join(["own", *re.findall(r"[a-z0-9]+", task.name.lower())])


def own_task(called: str) -> str | None:
    """Return where the user's task of an experiment is imported from in this process; None for one of ours."""
    return os.environ.get(OWN_TASK) if called.startswith("own-") else None


def task_of_cell(called: str) -> Task:
    """Return the task of an experiment: one of ours, or the user's that this process was started for."""
    return named_task(own_task(called) or called)


def task_of_run(folder: Any, recorded: str, given: str | None, option: str = "--task ") -> Task | None:
    """Return the task of a run where the command names one; code that only a file names is never imported.

    None stands for a task of ours, which the run names itself.
    """
    from inbounds.tasks.registry import names

    if given is None:
        if recorded in names():
            return None
        raise ConfigurationError(
            f"{folder} is a run of '{recorded}', a task of your own. Say where it is imported from: "
            f"{option}FILE.py:NAME or {option}MODULE:NAME."
        )
    task = named_task(given)
    require_trained_on(folder, recorded, task, given)
    return task


def require_trained_on(folder: Any, recorded: str, task: Task, given: str = "the given one") -> None:
    """Refuse another task than that of a run; what was trained on MJX is evaluated on the C simulator."""
    if recorded not in (task.name, f"{task.name}-mjx"):
        raise ConfigurationError(
            f"{folder} is a run of '{recorded}', but {given} is the task '{task.name}'. Name the one it was trained on."
        )
