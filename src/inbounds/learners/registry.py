"""The learners by name."""

from __future__ import annotations

from typing import Any

from inbounds.errors import UnknownNameError
from inbounds.learners.appropt import ApprOpt
from inbounds.learners.aram import Aram
from inbounds.learners.artd3 import ArTd3
from inbounds.learners.discrete_aram import DiscreteAram
from inbounds.learners.dpre import Dpre
from inbounds.learners.flowpg import FlowPg
from inbounds.learners.focops import Focops
from inbounds.learners.iar import Iar
from inbounds.learners.learner import Learner
from inbounds.learners.nfwpo import Nfwpo
from inbounds.learners.optlayer import OptLayer
from inbounds.learners.radial import Dalpha, Drad, Srad
from inbounds.learners.sac import Sac
from inbounds.learners.spre import Spre
from inbounds.learners.td3 import Td3


def sosac(**values: Any) -> Aram:
    """Return ARAM with one fixed preference and scalar critics."""
    return Aram(**{"preference": (0.9, 0.1), "policy_preferences": 1, "snapshots": 0, **values})


LEARNERS: dict[str, Any] = {
    "aram": Aram,
    "sosac": sosac,
    "artd3": ArTd3,
    "dpre": Dpre,
    "spre": Spre,
    "nfwpo": Nfwpo,
    "flowpg": FlowPg,
    "focops": Focops,
    "optlayer": OptLayer,
    "appropt": ApprOpt,
    "sac": Sac,
    "td3": Td3,
    "dalpha": Dalpha,
    "drad": Drad,
    "srad": Srad,
    "iar": Iar,
    "aram-discrete": DiscreteAram,
}


def make_learner(name: str, **settings: Any) -> Learner:
    """Build a learner from its name and settings (`preset=` included)."""
    if name not in LEARNERS:
        raise UnknownNameError("learner", name, LEARNERS, "`inbounds list` prints them.")
    learner: Learner = LEARNERS[name](**settings)
    return learner


def name_of(learner: Learner) -> str:
    """Return the name under which a learner is known; SOSAC is ARAM with a fixed preference."""
    if isinstance(learner, Aram):
        return "aram" if learner.preference is None else "sosac"
    return next(
        (name for name, kind in LEARNERS.items() if type(learner) is kind), type(learner).__name__.lower()
    )
