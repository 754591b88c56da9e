"""Slow environments of one's own are stepped by several processes, and nothing else changes."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import inbounds as ib
from inbounds.errors import InfeasibleActionError, SimulationError
from inbounds.tasks import gymnasium_batch
from inbounds.tasks.environment import Step
from inbounds.tasks.gymnasium_batch import GymnasiumBatch
from inbounds.tasks.gymnasium_group import Group, made_by_name
from inbounds.tasks.gymnasium_processes import GroupProcesses
from inbounds.tasks.named_tasks import named_task
from tests.tasks.own_environments import Counter, Line, Plant, Published

LIMIT = ib.WeightedL1(weights=ib.obs["constraint/weights"], bound=ib.obs["constraint/limit", 0])


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes take over after the second step, whether they are faster or not."""
    monkeypatch.setattr(gymnasium_batch, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(gymnasium_batch, "LEAST_SAVING", 0.0)
    monkeypatch.setattr(gymnasium_batch, "LEAST_SPEED_UP", 0.0)


def batch_of(environment: Any, constraint: Any, count: int, threads: int, **options: Any) -> GymnasiumBatch:
    task = ib.Task(environment, constraint, **{"horizon": 4, **options})
    assert task.host is not None
    batch = task.host(count, threads)
    assert isinstance(batch, GymnasiumBatch)
    return batch


def played(batch: GymnasiumBatch, steps: int = 20, size: int = 2) -> list[Step]:
    batch.reset(list(range(10, 10 + batch.count)))
    generator = np.random.default_rng(0)
    return [batch.step(0.1 * generator.uniform(size=(batch.count, size))) for _ in range(steps)]


def require_same(found: list[Step], expected: list[Step]) -> None:
    for one, other in zip(found, expected, strict=True):
        for column, wanted in zip(one, other, strict=True):
            assert column.dtype == wanted.dtype
            np.testing.assert_array_equal(column, wanted)


def workers_of(batch: GymnasiumBatch) -> list[subprocess.Popen[bytes]]:
    assert isinstance(batch.group, GroupProcesses)
    return [worker.process for worker in batch.group._workers]


def publishing() -> Plant:
    return Plant(publishes=True)


class Moving(Plant):
    """A plant that publishes a new set at every step."""

    def _seen(self) -> Any:
        seen, _ = super()._seen()
        return seen, {"constraint": ib.WeightedL1(weights=[1.0, 2.0], bound=float(seen["cap"][0]))}


@pytest.mark.parametrize(
    ("environment", "constraint"),
    [(publishing, LIMIT), (Moving, None), (Published, ib.RateLimit(0.5, previous=ib.previous_action))],
)
@pytest.mark.usefixtures("always")
def test_processes_return_what_one_process_returns_bit_for_bit(environment: Any, constraint: Any) -> None:
    expected = played(batch_of(environment, constraint, 5, threads=1))
    assert any(step.terminated.any() or step.truncated.any() for step in expected)
    batch = batch_of(environment, constraint, 5, threads=3)
    require_same(played(batch), expected)
    assert len(workers_of(batch)) == 2, "one part of three stays in this process"
    require_same(played(batch), expected)  # from the first step on in processes
    batch.close()


@pytest.mark.parametrize(("count", "threads"), [(1, 4), (4, 1)])
@pytest.mark.usefixtures("always")
def test_one_environment_or_one_thread_stays_in_this_process(count: int, threads: int) -> None:
    batch = batch_of(Plant, None, count, threads)
    played(batch)
    assert isinstance(batch.group, Group)


def test_fast_environments_stay_in_this_process_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_batch, "TRIAL_SECONDS", 0.0)
    monkeypatch.setattr(gymnasium_batch, "LEAST_SAVING", 1e6)
    monkeypatch.setattr(gymnasium_batch.Trial, "repeated_by_processes", None)
    batch = batch_of(Plant, None, 4, 2)
    played(batch, steps=gymnasium_batch.TRIAL_STEPS + 2)
    assert isinstance(batch.group, Group)


@pytest.mark.usefixtures("always")
def test_processes_that_are_not_faster_do_not_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium_batch, "LEAST_SPEED_UP", 1e6)
    batch = batch_of(Plant, None, 4, 2)
    require_same(played(batch), played(batch_of(Plant, None, 4, 1)))
    assert isinstance(batch.group, Group)


class Held(Plant):
    """A plant that needs something of the process that made it."""

    def __init__(self, lock: Any) -> None:
        super().__init__()
        self.lock = lock


class Told(Plant):
    """A plant that tells in which process it is."""

    def _seen(self) -> Any:
        seen, info = super()._seen()
        return {**seen, "load": np.full(2, os.getpid())}, info


class OnlyHere(Plant):
    """A plant that works in one process alone."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if os.getpid() != int(os.environ["ONLY_HERE"]):
            raise PermissionError("the licence belongs to another process")
        return super().reset(seed=seed)


@pytest.mark.usefixtures("always")
def test_environments_that_cannot_leave_their_process_stay_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONLY_HERE", str(os.getpid()))
    lock = threading.Lock()
    for make, reason in (
        (lambda: Held(lock), "cannot pickle '_thread.lock' object"),
        (Told, "same seeds and actions led to other observations"),
        (OnlyHere, "PermissionError: the licence belongs to another process"),
    ):
        batch = batch_of(make, None, 3, threads=2)
        with pytest.warns(UserWarning, match=f"(?s)one after another.*{reason}.*threads=1"):
            found = played(batch)
        require_same(found, played(batch_of(make, None, 3, threads=1)))
        assert isinstance(batch.group, Group)


class Fragile(Line):
    """A line that breaks in its own way when it is seeded with 12 and has made some steps."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.is_weak = seed == 12
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        seen, *rest = super().step(action)
        if self.is_weak and self.time == 6:
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "raises":
                raise BrokenError(self.time, "valve")
            seen[1] = np.nan
        return seen, *rest


class BrokenError(Exception):
    """An error that cannot be read again once it is pickled, as many are that have arguments of their own."""

    def __init__(self, time: int, part: str) -> None:
        super().__init__(f"{part} broke at {time}")


class CrackedError(BrokenError):
    """One that can."""

    def __reduce__(self) -> Any:
        return CrackedError, (6, "valve")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("threads", [1, 4])
def test_an_error_names_the_environment_that_it_comes_from(threads: int) -> None:
    batch = batch_of(lambda: Fragile("is nan"), ib.Box(-1.0, 1.0), 4, threads, horizon=10)
    for _ in range(2):  # after an error a reset begins anew
        with pytest.raises(SimulationError, match="entry 1 of the observation is not a finite") as caught:
            played(batch, size=1)
        assert "environment 2 of 4" in "".join(caught.value.__notes__)
    assert isinstance(batch.group, Group if threads == 1 else GroupProcesses)
    batch.close()


@pytest.mark.usefixtures("always")
def test_an_error_of_a_users_environment_keeps_its_type_or_at_least_its_text() -> None:
    class Sincere(Fragile):
        def step(self, action: Any) -> Any:
            try:
                return super().step(action)
            except BrokenError as error:
                raise CrackedError(6, "valve") from error

    batch = batch_of(lambda: Sincere("raises"), ib.Box(-1.0, 1.0), 4, 4, horizon=10)
    with pytest.raises(CrackedError, match="valve broke at 6") as caught:
        played(batch, size=1)
    assert "environment 2 of 4" in caught.value.__notes__[0] and "in step" in caught.value.__notes__[1]
    batch.close()
    batch = batch_of(lambda: Fragile("raises"), ib.Box(-1.0, 1.0), 4, 4, horizon=10)
    with pytest.raises(SimulationError, match="BrokenError: valve broke at 6"):
        played(batch, size=1)
    batch.close()


@pytest.mark.usefixtures("always")
def test_a_process_that_dies_is_an_error_that_names_its_environments() -> None:
    batch = batch_of(lambda: Fragile("killed"), ib.Box(-1.0, 1.0), 4, 3, horizon=10)
    with pytest.raises(SimulationError, match=r"environment 2 of 4 ended with status -9.*threads=1"):
        played(batch, size=1)
    batch.reset([1, 2, 3, 4])
    batch.step(np.zeros((4, 1)))
    batch.close()


@pytest.mark.usefixtures("always")
def test_an_infeasible_action_reaches_no_process() -> None:
    expected = played(batch_of(Counter, ib.Ball(radius_squared=1.0), 4, 1), steps=6)
    batch = batch_of(Counter, ib.Ball(radius_squared=1.0), 4, 2)
    batch.reset(list(range(10, 14)))
    generator = np.random.default_rng(0)
    found = []
    for _ in range(6):
        with pytest.raises(InfeasibleActionError, match="environment 3 of 4"):
            batch.step(np.array([[0.0, 0.0]] * 3 + [[1.0, 1.0]]))
        found.append(batch.step(0.1 * generator.uniform(size=(4, 2))))
    require_same(found, expected)
    assert workers_of(batch)
    batch.close()


@pytest.mark.usefixtures("always")
def test_an_id_that_a_script_registered_is_known_to_the_processes() -> None:
    gymnasium.register("Registered-v0", entry_point=lambda **options: Plant(**options), max_episode_steps=4)
    try:
        batch = batch_of("Registered-v0", None, 4, 2)
        require_same(played(batch), played(batch_of("Registered-v0", None, 4, 1)))
        assert workers_of(batch)
        batch.close()
    finally:
        del gymnasium.registry["Registered-v0"]


@pytest.mark.usefixtures("always")
def test_a_task_of_a_file_and_the_modules_beside_it_reach_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "plant_beside.py").write_text(
        "from tests.tasks.own_environments import Plant\nclass Beside(Plant): pass\n"
    )
    (tmp_path / "plant_task.py").write_text(
        "import inbounds as ib\nfrom plant_beside import Beside\n"
        "class Own(Beside): pass\n"
        "task = ib.Task(Own, ib.Ball(radius=0.5), horizon=4)\n"
    )
    try:
        task = named_task(f"{tmp_path / 'plant_task.py'}:task")
        assert task.host is not None
        batch = task.host(4, 2)
        require_same(played(batch), played(task.host(4, 1)))
        assert workers_of(batch)
        batch.close()
    finally:
        for name in ("plant_task", "plant_beside"):
            sys.modules.pop(name, None)


def test_an_id_that_its_package_registers_is_not_registered_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registering.py").write_text(
        "import gymnasium\n"
        "from tests.tasks.own_environments import Plant\n"
        "gymnasium.register('Registering-v0', 'registering:Plant', max_episode_steps=4)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        importlib.import_module("registering")
        registered = gymnasium.registry.pop("Registering-v0")
        del sys.modules["registering"]
        made_by_name(
            "Registering-v0", None, registered
        ).close()  # as in a new process; warnings are errors here
    finally:
        gymnasium.registry.pop("Registering-v0", None)
        sys.modules.pop("registering", None)


@pytest.mark.usefixtures("always")
def test_processes_end_with_their_batch() -> None:
    closed, forgotten = batch_of(Plant, None, 4, 3), batch_of(Plant, None, 4, 3)
    played(closed), played(forgotten)
    workers = [*workers_of(closed), *workers_of(forgotten)]
    assert len(workers) == 4 and all(worker.poll() is None for worker in workers)
    closed.close()
    closed.close()
    del forgotten
    gc.collect()
    assert [worker.returncode for worker in workers] == [0] * 4


@pytest.mark.usefixtures("always")
def test_a_step_that_is_interrupted_ends_the_processes_and_a_reset_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch = batch_of(Plant, None, 4, 3)
    played(batch)
    workers = workers_of(batch)
    with monkeypatch.context() as patch:
        patch.setattr(GroupProcesses, "_answer", lambda self, worker: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            batch.step(np.zeros((4, 2)))
    assert [worker.returncode for worker in workers] == [0, 0]
    require_same(played(batch), played(batch_of(Plant, None, 4, 1)))


# Whole programs -----------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, time
import gymnasium
import numpy as np
import inbounds as ib
from inbounds.tasks import gymnasium_batch

print("script", flush=True)  # without a guard: a process that imported the script would print it again


class Slow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        time.sleep(60.0 if self.time == 10 and os.getpid() != HOME else 0.0)
        return np.zeros(1), 1.0, False, False, {}


HOME = os.getpid()
gymnasium_batch.TRIAL_SECONDS = gymnasium_batch.LEAST_SAVING = gymnasium_batch.LEAST_SPEED_UP = 0.0
batch = ib.Task(Slow, ib.Box(-1.0, 1.0), horizon=100).host(4, 2)
batch.reset([0, 1, 2, 3])
while True:
    batch.step(np.zeros((4, 1)))
    if hasattr(batch.group, "_workers"):
        print(batch.group._workers[0].process.pid, flush=True)
        break
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Any]:
    """Start a script that has a batch in two processes; return it and the number of its other process."""
    running: list[subprocess.Popen[str]] = []

    def start(ending: str) -> tuple[subprocess.Popen[str], int]:
        path = tmp_path / "script.py"
        path.write_text(SCRIPT + ending)
        process = subprocess.Popen(
            [sys.executable, str(path)], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "script\n"
        return process, int(process.stdout.readline())

    yield start
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def has_ended(number: int, seconds: float = 15.0) -> bool:
    """Tell whether a process is gone, or only waits to be buried by a parent that is not ours."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


SOME_STEPS = "for _ in range(5): batch.step(np.zeros((4, 1)))\n"
FOREVER = "while True: batch.step(np.zeros((4, 1)))"
IDLE = "while True: time.sleep(0.1)"


@pytest.mark.parametrize(
    ("ending", "number"),
    [(SOME_STEPS, None), ("raise RuntimeError", None), ("os._exit(3)", None), (IDLE, signal.SIGINT),
     (IDLE, signal.SIGTERM), (IDLE, signal.SIGKILL), (FOREVER, signal.SIGINT)],
)  # fmt: skip
def test_processes_end_however_the_program_ends(program: Any, ending: str, number: int | None) -> None:
    process, worker = program(ending)
    if number is not None:
        os.killpg(process.pid, number)  # as a terminal does; the worker is in a group of its own
    said, _ = process.communicate(timeout=30)
    assert "script" not in said, "the script ran a second time"
    assert has_ended(worker)


@pytest.mark.slow
def test_a_process_that_is_stuck_in_a_step_ends_after_its_program(program: Any) -> None:
    process, worker = program(FOREVER)
    time.sleep(2.0)  # until it is stuck
    process.kill()
    assert has_ended(worker)
