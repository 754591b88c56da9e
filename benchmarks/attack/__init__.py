"""A standing attack on the promise that no door of the library lets an infeasible action through.

`python -m benchmarks.attack --minutes 30` asks random sets random questions, judges every answer by a checker that
shares no code with `inbounds.constraints`, and prints a minimal reproduction of whatever it finds.
"""
