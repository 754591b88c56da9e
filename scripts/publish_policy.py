"""Make a small published policy out of a run: `python scripts/publish_policy.py RUN policies/NAME`.

The first seed is taken, whatever it reached: choosing the best of several would promise what training does not hold.
"""

from __future__ import annotations

import sys
from pathlib import Path

from inbounds.storage.files import write_bytes, write_json
from inbounds.storage.sealed_arrays import meaning_of_run, read_sealed
from inbounds.training.record import CONFIG, POLICY, PROVENANCE, RunFolder


def publish(run: Path, target: Path) -> None:
    """Write the first seed of a run, with what explains it, into a folder that `inbounds evaluate` opens."""
    config = RunFolder(run).config()
    arrays = read_sealed(run / POLICY, meaning_of_run(config))
    config["training"] |= {"seeds": 1, "out": None}
    write_json(target / CONFIG, config)
    write_bytes(target / PROVENANCE, (run / PROVENANCE).read_bytes())
    RunFolder(target).write_policy({name: array[:1] for name, array in arrays.items()})


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
