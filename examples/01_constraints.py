"""Declare three constraints and draw which random proposals they accept, reject and project.

Run it with `make demo` or `python examples/01_constraints.py`; it writes runs/constraints.png.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import inbounds as ib

BOX = ib.Box([-1.0, -1.0], [1.0, 1.0])
SETS = {
    "energy": ib.Ball(radius_squared=0.6) & BOX,
    "power, read from the state": ib.PowerBudget(weights=ib.obs[0:2], bound=1.0) & BOX,
    "shared capacities": ib.Polytope([[1.0, 2.0], [-2.0, 1.0]], [0.8, 1.0]) & BOX,
}
OBSERVATION = np.array([2.0, 0.8])  # joint velocities, say: the power budget depends on them
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.75"


def draw(axes: plt.Axes, constraint: ib.Constraint, proposals: np.ndarray) -> None:
    """Draw the set, the proposals it accepts and rejects, and where the rejected ones would be projected."""
    ticks = np.linspace(-1.6, 1.6, 321)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    axes.contourf(
        ticks, ticks, constraint.violation(OBSERVATION, grid), levels=[-np.inf, 0.0], colors=["#E8F1F8"]
    )
    accepted = constraint.contains(OBSERVATION, proposals)
    rejected = proposals[~accepted]
    projected = constraint.project(OBSERVATION, rejected)
    axes.plot(*np.stack([rejected, projected], axis=-1)[:40].transpose(1, 2, 0), color=GREY, linewidth=0.6)
    axes.plot(*rejected.T, "x", color=ORANGE, markersize=4, label=f"rejected ({len(rejected)})")
    axes.plot(*proposals[accepted].T, ".", color=BLUE, markersize=5, label=f"accepted ({accepted.sum()})")
    axes.plot(*projected[:40].T, "o", color=GREEN, markersize=3, label="projected")
    axes.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6), aspect="equal", xlabel="$a_1$", ylabel="$a_2$")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, columnspacing=1.0)


def main() -> None:
    """Print what each set says about the proposals and draw it."""
    proposals = np.random.default_rng(0).uniform(-1.5, 1.5, size=(250, 2))
    figure, panels = plt.subplots(1, len(SETS), figsize=(12, 4.4), layout="constrained")
    for axes, (name, constraint) in zip(panels, SETS.items(), strict=True):
        accepted = constraint.contains(OBSERVATION, proposals)
        projected = constraint.project(OBSERVATION, proposals)
        worst = constraint.violation(OBSERVATION, projected).max()
        print(f"{name}: {constraint.formula()}")
        print(
            f"  accepts {accepted.mean():.0%} of the proposals; worst violation after projection {worst:.1e}"
        )
        print(f"  proposal 0: {constraint.explain(OBSERVATION, proposals[0])}")
        draw(axes, constraint, proposals)
        axes.set_title(name)
    path = Path("runs", "constraints.png")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=150)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
