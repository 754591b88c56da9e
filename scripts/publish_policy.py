"""Make a small published policy out of a run: `python scripts/publish_policy.py RUN policies/NAME`.

The first seed is taken, whatever it reached: choosing the best of several would promise what training does not hold.
`inbounds evaluate policies/NAME` and then `python scripts/publish_policy.py policies/NAME` write the model card.
"""

from __future__ import annotations

import sys
from pathlib import Path

from inbounds.deploy.export import CARD, model_card
from inbounds.deploy.policy import known_constraint, read_plan
from inbounds.storage.files import write_bytes, write_json, write_text
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


def write_card(folder: Path) -> None:
    """Write the model card of a published policy."""
    plan = read_plan(folder, None)
    write_text(folder / CARD, model_card(folder, plan, known_constraint(plan).formula(), has_graph=False))


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:]]
    if len(folders) > 1:
        publish(*folders)
    write_card(folders[-1])
