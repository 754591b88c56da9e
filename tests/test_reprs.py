"""What an interactive session shows of objects: sizes, how an action is found, and the set."""

from __future__ import annotations

from pathlib import Path

import inbounds as ib

POLICIES = Path(__file__).resolve().parent.parent / "policies"


def test_a_policy_shows_its_sizes_and_its_set() -> None:
    shown = repr(ib.load(POLICIES / "halfcheetah"))
    assert shown.startswith(
        "Policy(17 observed numbers -> 6 of an action, first feasible of 100, preference 0.9 0.1: "
    )
    assert "sum_i |w_i a_i| <= 20" in shown


def test_a_filter_shows_whether_it_asks_a_policy() -> None:
    limit = ib.Ball(radius=1.0)
    assert repr(ib.SafetyFilter(limit)) == "SafetyFilter(corrects only: sum_i a_i^2 <= 1)"
    asked = ib.SafetyFilter(limit, lambda observation: [0.0], proposals=7)
    assert repr(asked) == "SafetyFilter(asks a policy up to 7 times: sum_i a_i^2 <= 1)"


def test_environments_and_tasks_show_their_set() -> None:
    for name, limit in (("reacher", "sum_i a_i^2 <= 0.05"), ("bss3z", "sum_i a_i")):
        task = ib.make(name)
        environment = task.make_environment()
        assert str(environment).startswith(f"<{name}: ") and limit in repr(environment)
        assert repr(ib.ProjectAction(environment)) == f"<ProjectAction{environment}>"
        assert name in repr(task) and limit in repr(task)
        environment.close()
