"""Makes the pictures of README and documentation from the committed results and policies.

    python scripts/make_pictures.py

It writes docs/images/: curves of return, valid action rate and projections of all methods,
performance profiles, one step of ARAM, its default without each of its parts, and a film of HalfCheetah. Every figure
is drawn twice: NAME.png for a light page, NAME-dark.png, which is transparent, for a dark one. The film needs EGL or
OSMesa, as every picture of MuJoCo does; `--figures` leaves it out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure
from PIL import Image

import inbounds as ib
from inbounds.experiments.collecting import REFERENCES, read_references, read_results
from inbounds.report.comparison import draw_profiles
from inbounds.report.figures import write_figures
from inbounds.report.style import COLOURS, PARAMETERS, save, task_name

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results"
FIGURES = {
    "return": "return_by_steps",
    "validity": "valid_action_rate_by_steps",
    "projections": "projections",
}
"""The figures of the suite `paper` that are shown, by the names of their files."""
PALE = "#d0d7de"
DARK = {
    "savefig.transparent": True,
    "text.color": PALE,
    "axes.labelcolor": PALE,
    "axes.edgecolor": PALE,
    "xtick.color": PALE,
    "ytick.color": PALE,
}
"""How a figure differs on a dark page."""
SKIPPED, STEPS, SIZE, SHADES = 60, 48, (320, 320), 64
"""The film begins at full speed and stays below a megabyte."""


def draw_results(ending: str = "") -> None:
    """Draw the figures of the suite `paper`, and its methods compared over all tasks."""
    results = read_results([RESULTS / "paper"])
    with tempfile.TemporaryDirectory() as folder:
        write_figures(results, Path(folder), ("png",))
        for name, figure in FIGURES.items():
            shrink(Path(folder) / f"paper-{figure}.png", f"{name}{ending}")
        with rc_context(PARAMETERS):
            profiles = draw_profiles(results, read_references(RESULTS / REFERENCES))
            for name, drawn in (("profiles", profiles), ("method", draw_method()), ("parts", draw_parts())):
                if drawn is not None:
                    (written,) = save(drawn, Path(folder) / name, ("png",))
                    shrink(written, f"{name}{ending}")


SHOWN_PARTS = {
    "one-proposal": "default",
    "hundred-proposals": "a hundred proposals",
    "one-proposal-learning-rate-0.0003": "learning rate 3e-4",
    "one-proposal-penalty-20": "K = 20, not tuned",
    "one-proposal-no-self-loops": "no self-loops",
    "former default, from-scratch": "former default",
}
"""Variants in the figure of the default's parts, and what its legend calls them."""
PARTS_TASKS = ("halfcheetah", "ant", "nsfnet", "bss5z", "lunarlander", "reacher")


def draw_parts() -> Figure:
    """Draw return and valid action rate by steps of the default without each of its parts."""
    cells = json.loads((ROOT / "benchmarks" / "lab" / "followed.json").read_text())["cells"]
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    axes = figure.subplots(2, len(PARTS_TASKS), sharex=True)
    for column, task in enumerate(PARTS_TASKS):
        for (variant, label), colour in zip(SHOWN_PARTS.items(), COLOURS, strict=False):
            if (curve := cells[task].get(variant)) is None:
                continue
            colour = rcParams["text.color"] if variant.startswith("former") else colour
            steps = np.array(curve["steps"]) / 1_000
            for row, name in enumerate(("return", "valid")):
                values = np.array(curve[name])
                mean, deviation = values.mean(axis=0), values.std(axis=0, ddof=1)
                axes[row, column].plot(steps, mean, color=colour, label=label)
                axes[row, column].fill_between(
                    steps, mean - deviation, mean + deviation, color=colour, alpha=0.12, linewidth=0
                )
        axes[0, column].set_title(task_name(task))
        axes[1, column].set_ylim(0, 1.02)
        axes[0, column].set_ylim(*SHOWN_RETURNS.get(task, (None, None)))
    axes[0, 0].set_ylabel("return")
    axes[1, 0].set_ylabel("valid action rate")
    figure.supxlabel("environment steps (thousands)", fontsize=9)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=6)
    return figure


SHOWN_RETURNS = {
    "nsfnet": (11_000, 13_700),
    "bss5z": (-15_500, -14_200),
    "lunarlander": (-250, 300),
    "reacher": (-9, -4),
}
"""First returns lie far below; so do those without self-loops."""


def shrink(path: Path, name: str) -> None:
    """Keep a figure among the images; 256 colours suffice for an opaque one, but would lose pale transparent bands."""
    with Image.open(path) as figure:
        is_opaque = figure.convert("RGBA").getextrema()[3] == (255, 255)
        kept = figure.convert("RGB").quantize(256, dither=Image.Dither.NONE) if is_opaque else figure.copy()
        kept.save(IMAGES / f"{name}.png", optimize=True)


def draw_method() -> Figure:
    """Draw one step of ARAM: proposals, the two kinds of transitions, the two replay buffers, and the batch."""
    from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

    accepted, rejected, ink = COLOURS[2], COLOURS[1], rcParams["text.color"]
    figure = Figure(figsize=(8.4, 2.5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 16.8), ylim=(0, 5), aspect="equal")
    axes.set_axis_off()

    def box(x: float, y: float, width: float, text: str, colour: str = ink, height: float = 1.1) -> None:
        style = "round,pad=0.02,rounding_size=0.12"
        axes.add_patch(FancyBboxPatch((x, y), width, height, style, facecolor="none", edgecolor=colour))
        axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", color=colour, fontsize=9)

    def arrow(
        start: tuple[float, float], end: tuple[float, float], colour: str = ink, bend: float = 0.0
    ) -> None:
        look = {"arrowstyle": "-|>", "mutation_scale": 9, "shrinkA": 0, "shrinkB": 0}
        axes.add_patch(
            FancyArrowPatch(start, end, color=colour, connectionstyle=f"arc3,rad={bend}", linewidth=1, **look)
        )

    box(0.1, 1.95, 2.1, "policy\n$\\pi(\\cdot\\,|\\,s, \\lambda)$")
    arrow((2.2, 2.5), (3.1, 2.5))
    axes.add_patch(Circle((4.5, 2.5), 1.15, facecolor=accepted, alpha=0.15, edgecolor=accepted))
    axes.text(4.5, 0.95, "feasible set $C(s)$", ha="center", color=accepted, fontsize=9)
    for x, y, colour, mark in (
        (3.3, 3.75, rejected, "x"),
        (5.75, 3.45, rejected, "x"),
        (4.95, 2.75, accepted, "o"),
    ):
        axes.plot(x, y, mark, color=colour, markersize=5)
    axes.text(4.5, 4.4, "proposals, until one is feasible", ha="center", color=ink, fontsize=9)
    box(7.3, 3.35, 4.1, "self-loop  $(s, a_i, [0, -K], s)$", rejected)
    box(7.3, 0.55, 4.1, "step  $(s, a, [r, 0], s')$", accepted)
    arrow((5.95, 3.5), (7.3, 3.9), rejected)
    arrow((5.1, 2.65), (7.3, 1.2), accepted)
    box(12.0, 3.35, 1.9, "augmented\nreplay", rejected)
    box(12.0, 0.55, 1.9, "real\nreplay", accepted)
    arrow((11.4, 3.9), (12.0, 3.9), rejected)
    arrow((11.4, 1.1), (12.0, 1.1), accepted)
    box(14.6, 1.75, 2.1, "soft\nactor-critic\n$Q_r, Q_c$ for all $\\lambda$", height=1.5)
    arrow((13.9, 3.7), (15.3, 3.25), rejected)
    arrow((13.9, 1.3), (15.3, 1.75), accepted)
    axes.text(14.75, 3.75, "$\\eta$", color=rejected, fontsize=10)
    axes.text(14.65, 1.1, "$1 - \\eta$", color=accepted, fontsize=10)
    return figure


def film_halfcheetah() -> None:
    """Film the shipped policy, with the gauge of its power limit."""
    policy = ib.load(ROOT / "policies" / "halfcheetah")
    environment = ib.make("halfcheetah").make_environment(render_mode="rgb_array")
    observation, _ = environment.reset(seed=0)
    frames = []
    for step in range(SKIPPED + STEPS):
        observation, *_ = environment.step(policy.act(observation, deterministic=True))
        if step >= SKIPPED:
            frames.append(Image.fromarray(np.asarray(environment.render())).resize(SIZE))
    environment.close()
    palette = frames[0].quantize(SHADES)
    small = [frame.quantize(SHADES, palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(
        IMAGES / "halfcheetah.gif", save_all=True, append_images=small[1:], duration=50, loop=0, optimize=True
    )


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    draw_results()
    with rc_context(DARK):
        draw_results("-dark")
    if "--figures" not in sys.argv:
        film_halfcheetah()


if __name__ == "__main__":
    main()
