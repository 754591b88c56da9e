"""Which links exist, which of them each flow crosses, and who sends what: the two networks as data.

NSFnet, the backbone of the 1990s: 12 nodes joined by 15 trunks, and 16 access links that attach a site each.
A flow enters over one access link, crosses a few trunks and leaves over another access link.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TRUNKS = (
    (0, 1), (0, 4), (1, 2), (1, 3), (2, 4), (3, 5), (4, 7), (5, 6),
    (5, 10), (6, 7), (6, 8), (7, 11), (8, 9), (9, 10), (10, 11),
)  # fmt: skip
"""The two backbone nodes of every trunk; trunk 0 has the number 16 in the paper, trunk 14 the number 30."""
FIRST_TRUNK_NUMBER = 16
"""Access links are numbered 0 to 15 before the trunks."""
SITES = (
    ("Massachusetts", 0), ("New York", 0), ("New Jersey", 1), ("Maryland", 2),
    ("Pennsylvania", 3), ("Michigan", 3), ("Georgia", 4), ("Argonne, Illinois", 5),
    ("Urbana, Illinois", 6), ("Nebraska", 6), ("Texas", 7), ("Colorado", 8),
    ("Utah", 8), ("Washington", 9), ("Palo Alto, California", 10), ("San Diego, California", 11),
)  # fmt: skip
"""The site at the end of each access link and the node it hangs on."""
NODE_POSITIONS = (
    (9.5, 5.0), (8.3, 4.3), (7.9, 3.0), (7.1, 4.8), (9.0, 1.5), (5.6, 4.9),
    (4.8, 3.5), (4.6, 1.2), (2.7, 2.8), (1.2, 5.2), (0.3, 3.2), (1.3, 1.4),
)  # fmt: skip
"""Where a drawing puts each backbone node: a map of the United States, west to the left."""

TRUNK_CAPACITY = 50.0
"""Packets per second that a trunk serves on average, and the bound of its row in the constraint."""
PROPAGATION = 0.05
"""Seconds that every link takes beyond the wait."""
RETURN_HOP = 5e-5
"""Seconds that an acknowledgement takes per link."""
SLOTS_PER_SECOND = 500
"""Mean rate of the opportunities to send, one chain for the whole network, whatever the action."""
SLOTS_PER_SECOND_AT_RESET = 1000
"""The same while a reset sends its first packets."""


@dataclass(frozen=True)
class NetworkLayout:
    """Senders, their flows and the limits of one of the two networks.

    Flow k belongs to sender k // paths and is that sender's path k % paths. An action is the rate u_k of
    every flow in packets per second; the simulator sends N_k = ceil(u_k + offset) packets of it per interval, so
    that u_k = 0 sends one packet, and what a trunk carries may exceed its row of the constraint by up to one
    packet per flow and second: its queue then grows slowly.
    """

    name: str
    environment_id: str
    routes: tuple[tuple[int, ...], ...]
    """Per flow the numbers of its links: access, trunks, access."""
    paths: int
    """Flows per sender."""
    highest_rate: float
    rate_offset: float
    first_windows: int
    """Length of the first interval after a reset, in windows of 0.05 s; all later ones have 20."""
    constrained_trunks: tuple[int, ...]
    """The trunks whose rows form the constraint, by number."""
    largest_total_rate: float
    """The largest feasible sum of all rates (a linear programme; a test solves it again)."""
    good_rates: tuple[float, ...]
    """Constant rates that are better than most: where learners begin."""
    queue_limit: int = 500
    """Packets that a link holds, the one in service included; what arrives beyond is dropped."""

    @property
    def flows(self) -> int:
        """How many rates an action holds."""
        return len(self.routes)

    @property
    def senders(self) -> int:
        """How many sites send."""
        return self.flows // self.paths

    @property
    def most_packets(self) -> int:
        """The most packets that one interval sends under a feasible action: rounding up adds one per flow."""
        return round(self.largest_total_rate) + self.flows

    def trunks_of(self, flow: int) -> tuple[int, ...]:
        """Return the indices (from 0) of the trunks on a flow's route, in order."""
        return tuple(link - FIRST_TRUNK_NUMBER for link in self.routes[flow] if link >= FIRST_TRUNK_NUMBER)

    def incidence(self) -> NDArray[np.float64]:
        """Return the matrix (trunks, flows) that is 1 where the flow crosses the trunk."""
        matrix = np.zeros((len(TRUNKS), self.flows))
        for flow in range(self.flows):
            matrix[list(self.trunks_of(flow)), flow] = 1.0
        return matrix

    def constraint_rows(self) -> NDArray[np.float64]:
        """Return the rows A of A u <= capacity."""
        return self.incidence()[[number - FIRST_TRUNK_NUMBER for number in self.constrained_trunks]]

    def flow_names(self) -> tuple[str, ...]:
        """Return for every flow where it comes from, where it goes and over which trunks."""
        names = []
        for route in self.routes:
            source, *trunks, target = route
            via = " ".join(str(number) for number in trunks)
            names.append(f"packets/s from {SITES[source][0]} to {SITES[target][0]} over trunks {via}")
        return tuple(names)


GOOD_RATES = (17.8, 8.46, 5.39, 0.42, 4.86, 26.57, 6.28, 20.54, 7.67)
GOOD_RATES_20D = (
    0.42, 30.62, 0.3, 1.13, 5.95, 18.57, 25.94, 9.85, 27.64, 18.37,
    8.52, 0.78, 31.49, 0.58, 1.91, 0.4, 3.33, 0.85, 0.96, 33.53,
)  # fmt: skip
"""Packets per second of every flow: the best constant rates of 600,000 steps of `best_constant_action` with seed 1,
moved a twentieth of the way to the interior point so that what is drawn around them stays feasible."""

LAYOUTS = {
    "nsfnet": NetworkLayout(
        name="nsfnet",
        environment_id="inbounds/NSFnet-v0",
        routes=(
            (0, 16, 19, 21, 24, 14),
            (0, 16, 19, 21, 23, 25, 27, 30, 14),
            (0, 17, 22, 27, 30, 14),
            (0, 16, 19, 21, 23, 25, 10),
            (0, 16, 18, 20, 22, 10),
            (0, 17, 22, 10),
            (7, 23, 26, 28, 29, 14),
            (7, 24, 14),
            (7, 23, 25, 27, 30, 14),
        ),
        paths=3,
        highest_rate=100.0,
        rate_offset=5e-5,
        first_windows=3,
        # 18, 20, 26, 28 and 29 carry one flow that another row bounds; 21 and 30 repeat 19 and 27.
        constrained_trunks=(16, 17, 19, 22, 23, 24, 25, 27),
        largest_total_rate=150.0,
        good_rates=GOOD_RATES,
    ),
    "nsfnet20d": NetworkLayout(
        name="nsfnet20d",
        environment_id="inbounds/NSFnet20d-v0",
        routes=(
            (0, 16, 19, 21, 24, 14),
            (0, 17, 6),
            (0, 17, 22, 27, 15),
            (0, 16, 19, 21, 23, 26, 28, 13),
            (7, 23, 25, 10),
            (7, 24, 30, 15),
            (7, 21, 19, 16, 1),
            (7, 24, 29, 13),
            (14, 29, 28, 12),
            (14, 30, 27, 22, 6),
            (14, 24, 21, 4),
            (14, 30, 27, 22, 20, 3),
            (12, 26, 25, 10),
            (12, 28, 29, 30, 15),
            (12, 26, 25, 22, 17, 0),
            (12, 26, 23, 21, 19, 2),
            (6, 17, 1),
            (6, 22, 25, 9),
            (6, 22, 25, 26, 11),
            (6, 20, 3),
        ),
        paths=4,
        highest_rate=50.0,
        rate_offset=2.5e-5,
        first_windows=5,
        # Every trunk but 18, which no flow crosses.
        constrained_trunks=(16, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30),
        largest_total_rate=300.0,
        good_rates=GOOD_RATES_20D,
    ),
}
