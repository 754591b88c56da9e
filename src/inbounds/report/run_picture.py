"""The picture in a run folder: how return and valid action rate developed, beside reference policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from inbounds.report.style import COLOURS, PARAMETERS, drawn, learner_name, task_name
from inbounds.storage.files import replacing
from inbounds.training.record import EVALUATIONS, RunFolder

PICTURE = "learning_curve.png"


def draw_run(folder: RunFolder, references: Mapping[str, float]) -> Path:
    """Draw the evaluations of a run and write learning_curve.png into its folder; needs matplotlib."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    config, rows = folder.config(), list(folder.rows(EVALUATIONS))
    steps = np.asarray(sorted({row["step"] for row in rows}))
    seeds = sorted({row["seed"] for row in rows})
    with rc_context(PARAMETERS):
        figure = Figure(figsize=(7.2, 2.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        for axes, name, label in (
            (left, "return", "return"),
            (right, "valid_action_rate", "valid action rate"),
        ):
            found = {(row["step"], row["seed"]): row[name] for row in rows}
            curves = np.asarray([[found.get((step, seed), np.nan) for step in steps] for seed in seeds])
            if len(seeds) > 1:
                axes.plot(steps, curves.T, color=COLOURS[0], alpha=0.25, linewidth=0.8)
            axes.plot(steps, np.nanmean(curves, axis=0), color=COLOURS[0], marker=".", label="policy")
            axes.set(xlabel="environment steps", ylabel=label)
            axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        for index, (name, value) in enumerate(references.items()):
            left.axhline(value, color=COLOURS[1 + index], linestyle="--", linewidth=1, label=name)
        left.legend()
        right.set_ylim(-0.02, 1.02)
        learner, preset = learner_name(config["learner"]["name"]), config["learner"].get("preset", "default")
        figure.suptitle(drawn(f"{task_name(config['task'])}: {learner}, {preset}"))
        path = folder.path / PICTURE
        with replacing(path) as part:
            figure.savefig(part, format="png")
    return path
