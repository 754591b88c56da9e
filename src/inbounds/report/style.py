"""How every figure looks: colours that the colour-blind can tell apart, sizes that survive two columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inbounds.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette; its yellow is too pale for lines on white and is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")

# Methods keep their colour from figure to figure, whichever of them are drawn.
NAMES = {
    "aram": "ARAM",
    "sosac": "SOSAC",
    "dpre": "DPre+",
    "spre": "SPre+",
    "nfwpo": "NFWPO",
    "flowpg": "FlowPG",
    "focops": "FOCOPS",
    "artd3": "AR-TD3",
    "optlayer": "OptLayer",
    "appropt": "ApprOpt",
    "sac": "SAC",
    "td3": "TD3",
    "dalpha": "DAlpha",
    "drad": "DRad",
    "srad": "SRad",
    "iar": "IAR-A2C",
    "aram-discrete": "discrete ARAM",
}
ORDER = tuple(NAMES)
TASK_NAMES = {
    "reacher": "Reacher",
    "halfcheetah": "HalfCheetah",
    "hopper": "Hopper",
    "hoppervel": "HopperVel",
    "ant": "Ant",
    "nsfnet": "NSFnet",
    "nsfnet20d": "NSFnet20d",
    "bss3z": "BSS3z",
    "bss5z": "BSS5z",
    "polytope50": "Polytope50",
    "allocation": "Allocation",
    "reachershell": "ReacherShell",
    "reachertip": "ReacherTip",
    "halfcheetahangular": "HalfCheetahAngular",
    "hoppersine": "HopperSine",
    "hopperleast": "HopperLeast",
    "walker2dpower": "Walker2dPower",
    "walker2dsine": "Walker2dSine",
    "lunarlander": "LunarLander",
}
PARAMETERS: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "svg.fonttype": "path",
    "svg.hashsalt": "inbounds",
    "pdf.fonttype": 42,
}


def colour_of(index: int) -> str:
    """Return the colour of the method at this place."""
    return COLOURS[index % len(COLOURS)]


def place_of(learner: str) -> int:
    """Return a learner's fixed place in the palette; unknown ones follow by the letters of their name."""
    return ORDER.index(learner) if learner in ORDER else len(ORDER) + sum(map(ord, learner)) % len(COLOURS)


def learner_name(learner: str) -> str:
    """Return the name that papers print."""
    return NAMES.get(learner, learner)


def task_name(task: str) -> str:
    """Return the name that papers print."""
    return TASK_NAMES.get(task, task)


def drawn(text: str) -> str:
    """Return text that a figure shows as it is: a dollar sign in a task's name does not begin a formula."""
    return text.replace("$", r"\$")


def save(figure: Figure, path: Path, formats: tuple[str, ...] = ("pdf", "svg", "png")) -> list[Path]:
    """Write a figure in each format, without dates, so that equal figures are equal files."""
    written = []
    for ending in formats:
        target = path.with_name(f"{path.name}.{ending}")  # a name may have dots of its own
        undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending, {})
        with replacing(target) as part:
            figure.savefig(part, format=ending, metadata=undated)
        written.append(target)
    return written
