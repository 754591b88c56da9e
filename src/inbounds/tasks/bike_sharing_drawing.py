"""What one epoch of bike sharing looks like: bikes against capacity on a map, lost trips, moves and costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from inbounds.tasks.bike_sharing import (
    COST_PER_MOVED_BIKE,
    HORIZON,
    MOST_DEMAND,
    BikeSharingState,
    BikeSharingSystem,
    epoch_reward,
)
from inbounds.tasks.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PAPER,
    PURPLE,
    SKY,
    draw_gauge,
    new_canvas,
    pixels,
    stretched,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 960, 600
"""Size of the picture in pixels; both even, as video formats want it."""
MAP_LEFT, MAP_RIGHT, MAP_BOTTOM, MAP_TOP = 105, 530, 170, 460
"""Where the centres of the zones lie, in pixels from the lower left corner."""
PANEL_LEFT, PANEL_RIGHT = 660, 930
"""Where the panel of numbers lies."""
LOST, MOVED, PARKED = ORANGE, GREEN, PURPLE
"""The colour of each kind of cost, the same on the map and in the panel."""


def zone_positions(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points in the plane whose distances are near the given ones (classical scaling).

    The two leading eigenvectors of -J D^2 J / 2, J the centring matrix, are such points. Each axis may be
    mirrored: the entry that is largest in size is made positive, so that the map is the same everywhere.
    """
    zones = len(distances)
    centring = np.eye(zones) - 1.0 / zones
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)
    leading = np.argsort(values)[::-1][:2]
    points = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    largest = points[np.argmax(np.abs(points), axis=0), [0, 1]]
    return np.asarray(points * np.sign(largest))


class Transfer(NamedTuple):
    """Bikes carried from one zone to another before the epoch."""

    origin: int
    destination: int
    bikes: int


def transfers(moved: NDArray[np.integer]) -> list[Transfer]:
    """Pair the zones that gave bikes with those that got them, in index order."""
    left = np.array(moved, dtype=int)
    pairs = []
    for origin in np.flatnonzero(left < 0):
        for destination in np.flatnonzero(left > 0):
            bikes = int(min(-left[origin], left[destination]))
            if bikes > 0:
                pairs.append(Transfer(int(origin), int(destination), bikes))
                left[origin] += bikes
                left[destination] -= bikes
    return pairs


def draw_bike_sharing(
    state: BikeSharingState,
    action: NDArray[np.floating],
    *,
    system: BikeSharingSystem,
    tolerance: float,
    horizon: int = HORIZON,
) -> NDArray[np.uint8]:
    """Return the picture of the state after an epoch, and how much of the tolerance `action` had used.

    Before the first epoch there is no action; the gauge then shows that nothing is used.
    """
    figure, axes = new_canvas(WIDTH, HEIGHT)
    title = f"Bike sharing: {system.bikes} bikes, {system.zones} zones"
    axes.text(30, 565, title, fontsize=15, weight="bold", color=INK, va="center")
    _draw_map(axes, state, system)
    _draw_clock(axes, int(state.epoch), horizon)
    _draw_riders(axes, state, system)
    _draw_costs(axes, state)
    asked = float(np.sum(action)) if state.epoch > 0 else float(system.bikes)
    use = abs(asked - system.bikes) / tolerance
    label = f"sum requested: {asked:.1f} ({system.bikes} ± {tolerance:g})"
    return draw_gauge(pixels(figure)[..., :3], use, label)


def _draw_map(axes: Axes, state: BikeSharingState, system: BikeSharingSystem) -> None:
    points = zone_positions(system.distance_matrix())
    # Each axis is stretched on its own: that the map is easy to read matters more than its proportions.
    points = stretched(points, (MAP_LEFT, MAP_BOTTOM), (MAP_RIGHT, MAP_TOP))
    apart = np.linalg.norm(points[:, None] - points[None], axis=-1)[np.triu_indices(system.zones, 1)]
    radius = min(66.0, 0.36 * float(apart.min()))
    for i in range(system.zones):
        for j in range(i):
            axes.plot(*points[[i, j]].T, color=FAINT, linewidth=1.5, zorder=1)
    for transfer in transfers(np.asarray(state.moved)):
        _draw_transfer(axes, points[transfer.origin], points[transfer.destination], transfer.bikes, radius)
    for zone in range(system.zones):
        _draw_zone(axes, points[zone], radius, zone, state, system.capacity)


def _draw_transfer(
    axes: Axes, origin: NDArray[np.float64], destination: NDArray[np.float64], bikes: int, radius: float
) -> None:
    from matplotlib.patches import FancyArrowPatch

    points_per_pixel = 0.72
    gap = points_per_pixel * (radius + 4)
    axes.add_patch(
        FancyArrowPatch(
            tuple(origin), tuple(destination), connectionstyle="arc3,rad=0.18", arrowstyle="-|>",
            mutation_scale=16, shrinkA=gap, shrinkB=gap, color=MOVED, linewidth=min(1.5 + 0.35 * bikes, 6.0),
            zorder=2,
        )
    )  # fmt: skip


def _draw_zone(
    axes: Axes, centre: NDArray[np.float64], radius: float, zone: int, state: BikeSharingState, capacity: int
) -> None:
    from matplotlib.patches import Circle, Rectangle

    bikes, lost, moved = int(state.allocation[zone]), int(state.lost[zone]), int(state.moved[zone])
    x, y = float(centre[0]), float(centre[1])
    size = 0.17 * radius
    axes.add_patch(Circle((x, y), radius, facecolor=PAPER, edgecolor="none", zorder=3))
    filled = 2 * radius * bikes / capacity
    level = Rectangle((x - radius, y - radius), 2 * radius, filled, facecolor=SKY, linewidth=0, zorder=3)
    axes.add_patch(level)
    level.set_clip_path(Circle((x, y), radius, transform=axes.transData))
    axes.add_patch(Circle((x, y), radius, facecolor="none", edgecolor=BLUE, linewidth=2.5, zorder=4))
    middle: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 5, "color": INK}
    axes.text(x, y + 0.60 * radius, f"zone {zone + 1}", fontsize=size, **middle)
    axes.text(x, y + 0.08 * radius, f"{bikes}", fontsize=2.1 * size, weight="bold", **middle)
    axes.text(x, y - 0.42 * radius, f"of {capacity}", fontsize=size, **middle)
    if lost > 0:
        _draw_chip(axes, x, y - radius, f"{lost} lost", LOST, INK)
    if moved != 0:
        _draw_chip(axes, x + 0.8 * radius, y + 0.75 * radius, f"{moved:+d}".replace("-", "−"), MOVED, PAPER)


def _draw_chip(axes: Axes, x: float, y: float, words: str, colour: str, ink: str) -> None:
    box = {"boxstyle": "round,pad=0.3", "facecolor": colour, "edgecolor": PAPER, "linewidth": 1.5}
    font = {"fontsize": 10.5, "weight": "bold", "color": ink}
    axes.text(x, y, words, font, ha="center", va="center", zorder=6, bbox=box)


def _draw_clock(axes: Axes, epoch: int, horizon: int) -> None:
    axes.text(PANEL_LEFT, 565, f"epoch {epoch}", fontsize=15, weight="bold", color=INK, va="center")
    axes.text(PANEL_RIGHT, 565, f"of {horizon}", fontsize=11, color=MUTED, va="center", ha="right")
    _draw_bar(axes, 540, 6, [(epoch / horizon, BLUE)])


def _draw_riders(axes: Axes, state: BikeSharingState, system: BikeSharingSystem) -> None:
    axes.text(PANEL_LEFT, 500, "trips asked for, by zone", fontsize=11, color=MUTED, va="center")
    most = MOST_DEMAND * (system.zones - 1)
    spacing = 185 / system.zones
    for zone in range(system.zones):
        top = 482 - spacing * zone
        asked, lost = int(state.demand[zone]), int(state.lost[zone])
        axes.text(PANEL_LEFT, top - 4, f"{zone + 1}", fontsize=10, weight="bold", color=INK, va="top")
        words = f"{asked - lost} served, {lost} lost"
        axes.text(PANEL_RIGHT, top - 4, words, fontsize=10, color=INK, va="top", ha="right")
        _draw_bar(axes, top - 30, 10, [((asked - lost) / most, BLUE), (lost / most, LOST)])


def _draw_costs(axes: Axes, state: BikeSharingState) -> None:
    lost, parked = int(np.sum(state.lost)), int(state.overflow)
    moved = int(np.sum(np.abs(state.moved))) // 2
    rows = [
        ("lost trips", f"{lost}", LOST),
        ("parked elsewhere", f"{parked}", PARKED),
        (f"moved, {COST_PER_MOVED_BIKE} per bike", f"{COST_PER_MOVED_BIKE} × {moved}", MOVED),
    ]
    axes.text(PANEL_LEFT, 262, "cost of the epoch", fontsize=11, color=MUTED, va="center")
    costs = [lost, parked, COST_PER_MOVED_BIKE * moved]
    total = max(sum(costs), 1)
    _draw_bar(axes, 230, 14, [(cost / total, colour) for cost, (*_, colour) in zip(costs, rows, strict=True)])
    for row, (name, number, colour) in enumerate(rows):
        height = 204 - 28 * row
        axes.plot([PANEL_LEFT + 6], [height], marker="s", markersize=9, color=colour)
        axes.text(PANEL_LEFT + 22, height, name, fontsize=11, color=INK, va="center")
        axes.text(PANEL_RIGHT, height, number, fontsize=11, color=INK, va="center", ha="right")
    reward = f"{round(float(epoch_reward(state)))}".replace("-", "−")
    axes.plot([PANEL_LEFT, PANEL_RIGHT], [118, 118], color=FAINT, linewidth=1)
    axes.text(PANEL_LEFT, 90, "reward", fontsize=14, weight="bold", color=INK, va="center")
    axes.text(PANEL_RIGHT, 90, reward, fontsize=18, weight="bold", color=INK, va="center", ha="right")


def _draw_bar(axes: Axes, bottom: float, height: float, parts: list[tuple[float, str]]) -> None:
    """Draw parts of a whole, each a share and a colour, one after the other across the panel."""
    from matplotlib.patches import Rectangle

    left, room = float(PANEL_LEFT), PANEL_RIGHT - PANEL_LEFT
    axes.add_patch(Rectangle((left, bottom), room, height, facecolor=FAINT, linewidth=0))
    for share, colour in parts:
        axes.add_patch(Rectangle((left, bottom), room * share, height, facecolor=colour, linewidth=0))
        left += room * share
