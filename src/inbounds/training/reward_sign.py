"""Says once that negative rewards void what the augmented MDP promises."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


def told_by_python(message: str) -> None:
    """Warn as Python does."""
    warnings.warn(message, UserWarning, stacklevel=2)


class RewardWarning:
    """Proposition 1 needs r >= 0, since a rejected proposal earns 0; a callback of `train`."""

    def __init__(self, learner: Any, tell: Callable[[str], None] = told_by_python) -> None:
        """Watch learners that are trained on the augmented MDP; the others need no sign."""
        self.tell = tell
        self.is_needed = bool(getattr(learner, "augmented", False)) or "augmented" in learner.rings

    def __call__(self, row: dict[str, Any]) -> None:
        """Look at one row."""
        lowest = row.get("lowest_reward")
        if self.is_needed and lowest is not None and lowest < 0:
            self.is_needed = False
            self.tell(
                f"a training reward of {lowest:.3g} was seen. The augmented MDP has the task's optimal policies only "
                f"if rewards are not negative, since a rejected proposal earns 0. Where episodes never end early or "
                f"end only in failure, tell the task so (`ends_only_in_failure`) and rewards are lifted; "
                f"`inbounds.check_task` says more."
            )
