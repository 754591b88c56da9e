"""How good a run is: its policies replayed on fresh episodes, timed, and compared with baselines."""
