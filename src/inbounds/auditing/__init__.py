"""Whether any policy keeps a constraint: replayed on a task and checked in float64 without tolerance."""
