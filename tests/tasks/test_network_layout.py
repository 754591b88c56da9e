"""The two networks are those of the paper: routes, incidence, capacities and the size of the feasible set."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from inbounds.tasks.network_layout import FIRST_TRUNK_NUMBER, LAYOUTS, SITES, TRUNK_CAPACITY, TRUNKS

# Flows (from 0) on each trunk, written down from the tables of the two networks, not from the routes.
FLOWS_ON_TRUNK = {
    "nsfnet": {
        16: {0, 1, 3, 4}, 17: {2, 5}, 18: {4}, 19: {0, 1, 3}, 20: {4}, 21: {0, 1, 3}, 22: {2, 4, 5},
        23: {1, 3, 6, 8}, 24: {0, 7}, 25: {1, 3, 8}, 26: {6}, 27: {1, 2, 8}, 28: {6}, 29: {6}, 30: {1, 2, 8},
    },
    "nsfnet20d": {
        16: {0, 3, 6}, 17: {1, 2, 14, 16}, 18: set(), 19: {0, 3, 6, 15}, 20: {11, 19}, 21: {0, 3, 6, 10, 15},
        22: {2, 9, 11, 14, 17, 18}, 23: {3, 4, 15}, 24: {0, 5, 7, 10}, 25: {4, 12, 14, 17, 18},
        26: {3, 12, 14, 15, 18}, 27: {2, 9, 11}, 28: {3, 8, 13}, 29: {7, 8, 13}, 30: {5, 9, 11, 13},
    },
}  # fmt: skip
LINKS_PER_ROUTE = {
    "nsfnet": [6, 9, 6, 7, 6, 4, 6, 3, 6],
    "nsfnet20d": [6, 3, 5, 8, 4, 4, 5, 4, 4, 5, 4, 6, 4, 5, 6, 6, 3, 4, 5, 3],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_flow_crosses_the_trunks_of_the_table(name: str) -> None:
    incidence = LAYOUTS[name].incidence()
    for trunk, row in enumerate(incidence):
        assert set(np.flatnonzero(row)) == FLOWS_ON_TRUNK[name][trunk + FIRST_TRUNK_NUMBER]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_route_is_a_walk_through_the_network_from_site_to_site(name: str) -> None:
    layout = LAYOUTS[name]
    assert [len(route) for route in layout.routes] == LINKS_PER_ROUTE[name]
    for flow, route in enumerate(layout.routes):
        node = SITES[route[0]][1]
        for trunk in layout.trunks_of(flow):
            assert node in TRUNKS[trunk]
            node = sum(TRUNKS[trunk]) - node
        assert node == SITES[route[-1]][1]


@pytest.mark.parametrize("name", LAYOUTS)
def test_flows_of_one_sender_start_at_one_site(name: str) -> None:
    layout = LAYOUTS[name]
    for sender in range(layout.senders):
        own = layout.routes[sender * layout.paths : (sender + 1) * layout.paths]
        assert len({route[0] for route in own}) == 1


@pytest.mark.parametrize(("name", "rows"), [("nsfnet", 8), ("nsfnet20d", 14)])
def test_the_constraint_has_as_many_rows_as_the_paper_and_implies_all_trunks(name: str, rows: int) -> None:
    layout = LAYOUTS[name]
    constrained = layout.constraint_rows()
    assert len(constrained) == rows
    assert constrained.any(axis=1).all()
    for load in layout.incidence():
        # The largest load of a trunk under the rows alone does not exceed its capacity.
        worst = linprog(
            -load, A_ub=constrained, b_ub=np.full(rows, TRUNK_CAPACITY), bounds=(0, layout.highest_rate)
        )
        assert -worst.fun <= TRUNK_CAPACITY + 1e-9


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_packets_of_an_interval_are_bounded_by_the_largest_feasible_total(name: str) -> None:
    layout = LAYOUTS[name]
    rows = layout.constraint_rows()
    bound = np.full(len(rows), TRUNK_CAPACITY)
    solved = linprog(-np.ones(layout.flows), A_ub=rows, b_ub=bound, bounds=(0, layout.highest_rate))
    assert -solved.fun == pytest.approx(layout.largest_total_rate)
    assert layout.most_packets == round(layout.largest_total_rate) + layout.flows
