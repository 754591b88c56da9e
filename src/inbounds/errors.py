"""Every error of the library; each message says what was met, what was expected and what to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InboundsError(Exception):
    """Root of the library's own errors, so that a caller can catch them all at once."""


class ConstraintError(InboundsError, ValueError):
    """A constraint that is badly declared, or asked something it cannot answer."""


class EmptySetError(ConstraintError):
    """No action satisfies the constraint; the message names the rows that conflict."""


class InvalidInputError(InboundsError, ValueError):
    """An observation or an action with a wrong shape, a wrong type or a value that is not a number."""


class InfeasibleActionError(InboundsError, ValueError):
    """An action outside its constraint arrived at the environment's door; the environment did not move."""


class ConfigurationError(InboundsError, ValueError):
    """Settings that cannot work together, refused before anything starts."""


class CheckpointError(InboundsError):
    """A checkpoint that is truncated, foreign, older, or could not be written."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that is not what was written; an older one may still be whole."""


class StorageError(InboundsError):
    """A file could not be written: no space, no permission; what was there before is unchanged."""


class FolderBusyError(InboundsError):
    """Another process is writing to the folder of a run."""


class DivergenceError(InboundsError):
    """Training met a value that is not a number; the last good checkpoint still stands."""


class SimulationError(InboundsError):
    """An environment's own simulation failed (a bound was passed, a value is not a number); it did not move."""


class MissingDependencyError(InboundsError, ImportError):
    """An optional package is needed; the message holds the command that installs it."""


class UnknownNameError(InboundsError, KeyError):
    """A name that is not in a table; the message suggests the nearest one."""

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str) -> None:
        """Compose the message from what was asked for and what exists."""
        names = sorted(known)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        suggestion = f" Did you mean '{nearest[0]}'?" if nearest else ""
        super().__init__(f"no {kind} is called '{name}'.{suggestion} Known: {', '.join(names)}. {remedy}")

    def __str__(self) -> str:
        """Return the plain message, without the quotes that KeyError puts around it."""
        return str(self.args[0])
