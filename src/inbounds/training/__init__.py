"""How it runs: collecting, updating, evaluating, recording and resuming."""
