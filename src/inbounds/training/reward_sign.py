"""Says once that negative rewards void what the augmented MDP promises."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

LIBRARY = __name__.partition(".")[0]


def told_by_python(message: str) -> None:
    """Warn as Python does, at the line that called the library."""
    frame, level = sys._getframe(), 1  # by hand: skip_file_prefixes came with Python 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == LIBRARY:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


class RewardWarning:
    """Proposition 1 needs r >= 0, since a rejected proposal earns 0; a callback of `train`."""

    def __init__(self, learner: Any, tell: Callable[[str], None] = told_by_python) -> None:
        """Watch learners that are trained on the augmented MDP; the others need no sign."""
        self.tell = tell
        self.is_needed = learner.augmented

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
