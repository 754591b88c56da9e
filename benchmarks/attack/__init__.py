"""A standing attack on the promise that no door of the library lets an infeasible action through.

`python -m benchmarks.attack --minutes 30` asks random sets random questions, judges every answer by a checker that
shares no code with `inbounds.constraints`, and prints a minimal reproduction of whatever it finds.
"""

import os

# Whether a call is slow is told by the time of the processor, in which threads of BLAS that wait for a busy processor
# count as well: on a loaded machine matrices of 200 rows took six times as long. NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
