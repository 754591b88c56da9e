"""How methods are compared: one protocol, suites as data, statistics, the paper's numbers."""
