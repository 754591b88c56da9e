"""How methods are compared: suites of experiments, the processes that run them, and their stored results."""
