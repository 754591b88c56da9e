"""The learners by name; a module is imported when its learner is first used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping
from typing import Any

from inbounds.errors import UnknownNameError
from inbounds.learners.learner import Learner
from inbounds.limits import require_moderate


def sosac(**values: Any) -> Any:
    """Return ARAM with one fixed preference; in the paper's form its critics are scalar."""
    from inbounds.learners.aram import Aram

    return Aram(**{"preference": (0.9, 0.1), "preference_samples": 1, "q_snapshots": 0, **values})


class Registry(MutableMapping[str, Any]):
    """From names to learner classes; a class may be given as "module:Class" and is then imported on first use."""

    def __init__(self, entries: dict[str, Any]) -> None:
        """Keep the entries."""
        self._entries = entries

    def __getitem__(self, name: str) -> Any:
        """Return the class, or a function that makes the learner."""
        found = self._entries[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            found = getattr(importlib.import_module(f"inbounds.learners.{module}"), attribute)
        return found

    def __setitem__(self, name: str, learner: Any) -> None:
        """Add a learner: a class or a function that makes it."""
        self._entries[name] = learner

    def __delitem__(self, name: str) -> None:
        """Remove a learner."""
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        """Return the names."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of learners."""
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Tell whether a learner is known, without importing it."""
        return name in self._entries

    def copy(self) -> Registry:
        """Return a registry with the same entries."""
        return Registry(dict(self._entries))

    def name_of(self, kind: type) -> str | None:
        """Return the name of a class, without importing others."""
        path = f"{kind.__module__.rpartition('.')[2]}:{kind.__name__}"
        is_own = kind.__module__.startswith("inbounds.learners.")
        known = ((name, entry) for name, entry in self._entries.items())
        return next((name for name, entry in known if entry is kind or (is_own and entry == path)), None)


LEARNERS = Registry(
    {
        "aram": "aram:Aram",
        "sosac": sosac,
        "artd3": "aram_variants:ArTd3",
        "dpre": "td3:Dpre",
        "spre": "sac:Spre",
        "nfwpo": "nfwpo:Nfwpo",
        "flowpg": "flowpg:FlowPg",
        "focops": "focops:Focops",
        "optlayer": "layers:OptLayer",
        "appropt": "layers:ApprOpt",
        "sac": "sac:Sac",
        "td3": "td3:Td3",
        "dalpha": "layers:Dalpha",
        "drad": "layers:Drad",
        "srad": "layers:Srad",
        "iar": "iar:Iar",
        "aram-discrete": "aram_variants:DiscreteAram",
    }
)


def make_learner(name: str, **settings: Any) -> Learner:
    """Build a learner from its name and settings (`preset=` included)."""
    if name not in LEARNERS:
        raise UnknownNameError("learner", name, LEARNERS, "`inbounds list` prints them.")
    require_moderate(settings)
    learner: Learner = LEARNERS[name](**settings)
    return learner


def name_of(learner: Learner) -> str:
    """Return the name under which a learner is known; SOSAC is ARAM with a fixed preference."""
    known = LEARNERS.name_of(type(learner)) or type(learner).__name__.lower()
    if known == "aram" and not learner.preference_size:
        return "sosac"
    return known
