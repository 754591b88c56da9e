"""What one interval of a packet network looks like: trunks filled to their load, queues, senders, the gauge."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from inbounds.tasks.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    RED,
    SKY,
    draw_gauge,
    new_canvas,
    pixels,
    stretched,
)
from inbounds.tasks.network_layout import SITES, NetworkLayout
from inbounds.tasks.network_simulator import HORIZON

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from inbounds.tasks.network import Snapshot

WIDTH, HEIGHT = 1080, 620
"""Size of the picture in pixels; both even, as video formats want it."""
MAP_LEFT, MAP_RIGHT, MAP_BOTTOM, MAP_TOP = 60, 690, 150, 510
PANEL_LEFT, PANEL_RIGHT = 790, 1050
SENDER_COLOURS = (BLUE, GREEN, PURPLE, ORANGE, SKY)
NEARLY_FULL = 0.9
"""From this fraction of its capacity on a trunk changes colour."""


def draw_network(layout: NetworkLayout, seen: Snapshot) -> NDArray[np.uint8]:
    """Return the picture of the last interval and how much of the fullest trunk the action asked for."""
    figure, axes = new_canvas(WIDTH, HEIGHT)
    title = f"NSFnet: {layout.flows} flows, {len(seen.trunks)} trunks of {seen.capacity:g} packets/s"
    axes.text(30, HEIGHT - 32, title, fontsize=15, weight="bold", color=INK, va="center")
    where = "before the first interval" if seen.steps == 0 else f"interval {seen.steps} of {HORIZON}"
    axes.text(PANEL_RIGHT, HEIGHT - 32, where, fontsize=11, color=MUTED, va="center", ha="right")
    _draw_trunks(axes, seen)
    _draw_nodes(axes, layout, seen)
    _draw_senders(axes, layout, seen)
    _draw_legend(axes)
    use = np.where(seen.is_constrained, seen.demanded, 0.0) / seen.capacity
    fullest = int(np.argmax(use))
    label = (
        f"trunk {seen.trunk_numbers[fullest]}: {seen.demanded[fullest]:.1f} of {seen.capacity:g} packets/s"
    )
    return draw_gauge(pixels(figure)[..., :3], float(use[fullest]), label)


def _points(seen: Snapshot) -> NDArray[np.float64]:
    """Return where the nodes stand in the picture."""
    return stretched(np.array(seen.node_positions), (MAP_LEFT, MAP_BOTTOM), (MAP_RIGHT, MAP_TOP))


def _draw_trunks(axes: Axes, seen: Snapshot) -> None:
    points = _points(seen)
    for trunk, (one, other) in enumerate(seen.trunks):
        ends = points[[one, other]]
        share = float(seen.demanded[trunk]) / seen.capacity
        colour = RED if share > 1 else ORANGE if share >= NEARLY_FULL else BLUE
        axes.plot(*ends.T, color=FAINT, linewidth=13, solid_capstyle="round", zorder=1)
        if share > 0:
            width = 13 * min(share, 1.0)
            axes.plot(*ends.T, color=colour, linewidth=width, solid_capstyle="round", zorder=2)
        middle = ends.mean(axis=0)
        axes.text(
            middle[0], middle[1], f"{seen.demanded[trunk]:.0f}", fontsize=9.5, weight="bold",
            color=colour if share else MUTED,
            ha="center", va="center", zorder=10,
            bbox={"boxstyle": "round,pad=0.22", "facecolor": PAPER, "edgecolor": colour if share else FAINT},
        )  # fmt: skip
        _draw_queue(axes, middle, int(seen.queue_lengths[trunk]))


def _draw_queue(axes: Axes, middle: NDArray[np.float64], length: int) -> None:
    """Draw the packets that a trunk holds as a pile beside its load, one mark for up to ten of them."""
    if length == 0:
        return
    marks = min(-(-length // 10), 50)
    for mark in range(marks):
        x, y = middle[0] + 17 + 5 * (mark % 10), middle[1] - 2 - 5 * (mark // 10)
        axes.plot(x, y, marker="s", markersize=2.1, color=INK, zorder=6)
    below = 12 + 5 * ((marks - 1) // 10)
    axes.text(
        middle[0] + 14, middle[1] - below, f"{length} waiting", fontsize=7.5, color=INK, va="center", zorder=6,
        bbox={"boxstyle": "round,pad=0.1", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.75},
    )  # fmt: skip


def _draw_nodes(axes: Axes, layout: NetworkLayout, seen: Snapshot) -> None:
    points = _points(seen)
    sources = [layout.routes[sender * layout.paths][0] for sender in range(layout.senders)]
    ends = sorted({link for route in layout.routes for link in (route[0], route[-1])})
    axes.scatter(points[:, 0], points[:, 1], s=95, color=PAPER, edgecolor=INK, linewidth=1.6, zorder=7)
    names: dict[int, list[str]] = {}
    for site in ends:
        names.setdefault(SITES[site][1], []).append(SITES[site][0])
    for sender, site in enumerate(sources):
        # Where a site is the home of several senders, each is a ring around the next.
        size = 95 + 110 * sources[sender + 1 :].count(site)
        x, y = points[SITES[site][1]]
        axes.scatter(x, y, s=size, color=SENDER_COLOURS[sender], edgecolor=INK, zorder=8)
    for node, sites in names.items():
        x, y = points[node]
        is_low = y < (MAP_BOTTOM + MAP_TOP) / 2
        axes.text(
            x, y + (-17 if is_low else 17), "\n".join(sites), fontsize=8.5, color=INK, ha="center",
            va="top" if is_low else "bottom", linespacing=1.05, zorder=9,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.8},
        )  # fmt: skip


def _draw_senders(axes: Axes, layout: NetworkLayout, seen: Snapshot) -> None:
    """Draw what every sender got through in the last interval, and after which round-trip time."""
    from matplotlib.patches import Rectangle

    axes.plot([PANEL_LEFT - 25] * 2, [40, HEIGHT - 70], color=FAINT, linewidth=1)
    top = HEIGHT - 92
    spacing = min(105.0, 420.0 / layout.senders)
    most = 100.0 if layout.senders == 3 else 80.0
    for sender in range(layout.senders):
        y = top - sender * spacing
        colour = SENDER_COLOURS[sender]
        routes = layout.routes[sender * layout.paths : (sender + 1) * layout.paths]
        targets = {route[-1] for route in routes}
        words = SITES[routes[0][0]][0]
        if len(targets) == 1:
            words = f"{words} to {SITES[targets.pop()][0].split(',')[0]}"
        axes.scatter(PANEL_LEFT + 6, y, s=70, color=colour, edgecolor=INK, zorder=5)
        axes.text(PANEL_LEFT + 20, y, words, fontsize=10.5, weight="bold", color=INK, va="center")
        rate = max(float(seen.throughput[sender]), 0.0)
        trip = float(seen.round_trip[sender])
        rows = ((rate / most, f"{rate:.0f} packets/s"), (trip / 2.0, f"{trip:.2f} s round trip"))
        for row, (share, figures) in enumerate(rows):
            bottom = y - 22 - 17 * row
            shade = colour if row == 0 else MUTED
            axes.add_patch(Rectangle((PANEL_LEFT, bottom - 5), 130, 10, facecolor=FAINT, linewidth=0))
            axes.add_patch(
                Rectangle((PANEL_LEFT, bottom - 5), 130 * min(share, 1.0), 10, facecolor=shade, linewidth=0)
            )
            axes.text(PANEL_LEFT + 138, bottom, figures, fontsize=9, color=INK, va="center")
    bottom = top - layout.senders * spacing + 5
    lost = "nothing dropped" if seen.drops == 0 else f"{seen.drops} packets dropped"
    axes.text(PANEL_LEFT, bottom, lost, fontsize=10, color=RED if seen.drops else MUTED, va="center")


def _draw_legend(axes: Axes) -> None:
    words = (
        "number on a trunk: packets/s that the action sends over it",
        "colour of a trunk: changes at 90 % of its capacity",
        "black marks: its queue, one for up to ten packets",
    )
    for row, text in enumerate(words):
        axes.text(410, 62 - 15 * row, text, fontsize=8, color=MUTED, va="center")
