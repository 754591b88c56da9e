"""Makes the pictures of README and documentation from the committed results and policies.

    python scripts/make_pictures.py

It writes docs/images/: curves of return and valid action rate of all methods, and a film of HalfCheetah. The film needs
EGL or OSMesa, as every picture of MuJoCo does.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import inbounds as ib
from inbounds.experiments.collecting import read_results
from inbounds.report.figures import write_figures

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
SKIPPED, STEPS, SIZE, COLOURS = 60, 48, (320, 320), 64
"""The film begins at full speed and stays below a megabyte."""


def draw_curves() -> None:
    """Draw the learning curves of the suite `paper`."""
    results = read_results([ROOT / "benchmarks" / "results" / "paper"])
    with tempfile.TemporaryDirectory() as folder:
        write_figures(results, Path(folder), ["png"])
        for name, figure in (("return", "return_by_steps"), ("validity", "valid_action_rate_by_steps")):
            shutil.copyfile(Path(folder) / f"paper-{figure}.png", IMAGES / f"{name}.png")


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
    palette = frames[0].quantize(COLOURS)
    small = [frame.quantize(COLOURS, palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(
        IMAGES / "halfcheetah.gif", save_all=True, append_images=small[1:], duration=50, loop=0, optimize=True
    )


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(exist_ok=True)
    draw_curves()
    film_halfcheetah()


if __name__ == "__main__":
    main()
