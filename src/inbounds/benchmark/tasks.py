"""The tasks that suites and the command line know: the nine of the library, and two synthetic ones."""

from __future__ import annotations

from inbounds.benchmark.polytope_tracking import polytope_tracking_task
from inbounds.tasks.allocation import allocation_task
from inbounds.tasks.registry import make, names
from inbounds.tasks.task import Task

SYNTHETIC = ("polytope50", "allocation")


def known_tasks() -> tuple[str, ...]:
    """Return every name that `find_task` knows."""
    return (*names(), *SYNTHETIC)


def find_task(name: str) -> Task:
    """Return a task by its name."""
    if name.lower() == "polytope50":
        return polytope_tracking_task(dimension=50, rows=30)
    if name.lower() == "allocation":
        return allocation_task()
    return make(name)
