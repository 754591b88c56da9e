"""How methods are compared: suites of experiments, the processes that run them, and their stored results."""

from inbounds.experiments.experiment import Cell, pairs
from inbounds.experiments.suites import Suite

__all__ = ["Cell", "Suite", "pairs"]
