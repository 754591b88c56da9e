"""The theory behind self-loops, on finite MDPs that are solved exactly."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

GAMMA, STATES, ACTIONS = 0.9, 4, 5


def random_mdp(seed, lowest=0.0):
    """Return transitions, rewards in [lowest, 1] and a feasibility table with at least one feasible action."""
    rng = np.random.default_rng(seed)
    transitions = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
    rewards = rng.uniform(lowest, 1.0, size=(STATES, ACTIONS))
    is_feasible = rng.random((STATES, ACTIONS)) < 0.5
    is_feasible[np.arange(STATES), rng.integers(ACTIONS, size=STATES)] = True
    return transitions, rewards, is_feasible


def augmented(transitions, rewards, is_feasible, preference, penalty):
    """Return the scalarised augmented MDP: an infeasible action stays where it is and pays lambda_c K."""
    loops = np.broadcast_to(np.eye(STATES)[:, None, :], transitions.shape)
    moved = np.where(is_feasible[..., None], transitions, loops)
    paid = np.where(is_feasible, preference[0] * rewards, -preference[1] * penalty)
    return moved, paid


def optimal_values(transitions, rewards, allowed):
    """Iterate Bellman's operator over the allowed actions until it stands still."""
    values = np.zeros(STATES)
    while True:
        worth = np.where(allowed, rewards + GAMMA * transitions @ values, -np.inf)
        following = worth.max(axis=1)
        if np.max(np.abs(following - values)) < 1e-12:
            return following, worth
        values = following


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("preference", [(1.0, 0.0), (0.9, 0.1), (0.5, 0.5), (0.1, 0.9)])
def test_an_optimal_feasible_policy_stays_optimal_among_all_policies(seed, preference):
    transitions, rewards, is_feasible = random_mdp(seed)
    moved, paid = augmented(transitions, rewards, is_feasible, preference, penalty=0.2)
    constrained, _ = optimal_values(transitions, preference[0] * rewards, is_feasible)
    unconstrained, _ = optimal_values(moved, paid, np.ones_like(is_feasible))
    np.testing.assert_allclose(unconstrained, constrained, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_with_a_price_on_rejection_every_optimal_action_is_feasible(seed):
    transitions, rewards, is_feasible = random_mdp(seed)
    moved, paid = augmented(transitions, rewards, is_feasible, (0.9, 0.1), penalty=0.2)
    _, worth = optimal_values(moved, paid, np.ones_like(is_feasible))
    best = worth >= worth.max(axis=1, keepdims=True) - 1e-9
    assert not np.any(best & ~is_feasible)


def test_without_a_price_and_without_reward_rejection_is_as_good_as_acting():
    transitions, rewards, is_feasible = random_mdp(0)
    moved, paid = augmented(transitions, 0 * rewards, is_feasible, (1.0, 0.0), penalty=0.2)
    _, worth = optimal_values(moved, paid, np.ones_like(is_feasible))
    best = worth >= worth.max(axis=1, keepdims=True) - 1e-9
    assert np.any(best & ~is_feasible)


def test_with_negative_rewards_being_rejected_for_ever_can_beat_every_feasible_policy():
    transitions, rewards, is_feasible = random_mdp(3, lowest=-1.0)
    rewards, is_feasible = (
        -np.abs(rewards) - 0.5,
        is_feasible & (np.arange(ACTIONS) > 0),
    )  # action 0 is never feasible
    is_feasible[:, 1] = True
    moved, paid = augmented(transitions, rewards, is_feasible, (0.9, 0.1), penalty=0.2)
    constrained, _ = optimal_values(transitions, 0.9 * rewards, is_feasible)
    unconstrained, _ = optimal_values(moved, paid, np.ones_like(is_feasible))
    assert np.all(unconstrained > constrained + 0.1)
    dear, price = augmented(transitions, rewards, is_feasible, (0.9, 0.1), penalty=50.0)
    restored, _ = optimal_values(dear, price, np.ones_like(is_feasible))
    np.testing.assert_allclose(restored, constrained, atol=1e-9)


@pytest.mark.parametrize(
    ("acceptance", "penalty"), list(itertools.product([0.01, 0.3, 0.9, 1.0], [0.05, 0.2]))
)
def test_the_value_of_a_state_follows_from_its_acceptance_rate(acceptance, penalty):
    """V = (p Q_acc + (1 - p) [0, -K]) / (1 - gamma (1 - p)), per objective."""
    accepted = np.array([3.7, -0.4])
    expected = (acceptance * accepted + (1 - acceptance) * np.array([0.0, -penalty])) / (
        1 - GAMMA * (1 - acceptance)
    )
    value = np.zeros(2)
    for _ in range(5_000):  # what a self-loop does, one rejection at a time
        value = acceptance * accepted + (1 - acceptance) * (np.array([0.0, -penalty]) + GAMMA * value)
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_rare_acceptance_halves_the_reward_objective():
    """At p = 0.01 and gamma = 0.99 the damping p / (1 - gamma (1 - p)) is one half."""
    damping = 0.01 / (1 - 0.99 * 0.99)
    assert damping == pytest.approx(0.5, abs=0.01)


# Self-loops that are not discounted ------------------------------------------------------------------------------


def values_of(policy, transitions, rewards, is_feasible, preference, penalty, loop_discount):
    """Solve V(s) = sum_a pi(a|s) [r + gamma P V] with self-loops at infeasible actions, for one stochastic policy."""
    accepted = policy * is_feasible
    rejected = np.sum(policy * ~is_feasible, axis=1)
    moved = np.einsum("sa,sat->st", accepted, transitions)
    paid = preference[0] * np.sum(accepted * rewards, axis=1) - preference[1] * penalty * rejected
    system = np.eye(STATES) - GAMMA * moved - loop_discount * np.diag(rejected)
    return np.linalg.solve(system, paid)


def random_policy(seed):
    return np.random.default_rng(1_000 + seed).dirichlet(np.ones(ACTIONS), size=STATES)


def feasible_part(policy, is_feasible):
    kept = policy * is_feasible
    return kept / kept.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("lowest", [-100.0, 0.0])
@pytest.mark.parametrize("seed", range(20))
def test_without_discount_a_policy_gains_by_its_feasible_part_whatever_the_sign_of_rewards(seed, lowest):
    transitions, rewards, is_feasible = random_mdp(seed, lowest)
    policy = random_policy(seed)
    problem = (transitions, rewards, is_feasible, (0.9, 0.1), 0.2)
    whole = values_of(policy, *problem, loop_discount=1.0)
    feasible = values_of(feasible_part(policy, is_feasible), *problem, loop_discount=1.0)
    assert np.all(feasible >= whole - 1e-9)
    # The difference is lambda_c K times the discounted sum of (1 - p) / p, and holds no reward.
    odds = 1.0 / np.sum(policy * is_feasible, axis=1) - 1.0
    moved = np.einsum("sa,sat->st", feasible_part(policy, is_feasible), transitions)
    counted = np.linalg.solve(np.eye(STATES) - GAMMA * moved, odds)
    np.testing.assert_allclose(feasible - whole, 0.1 * 0.2 * counted, atol=1e-7)


def test_with_discount_a_negative_reward_makes_rejections_pay():
    transitions, rewards, is_feasible = random_mdp(0)
    problem = (transitions, rewards - 100.0, is_feasible, (0.9, 0.1), 0.2)
    policy = random_policy(0)
    whole = values_of(policy, *problem, loop_discount=GAMMA)
    feasible = values_of(feasible_part(policy, is_feasible), *problem, loop_discount=GAMMA)
    assert np.any(feasible < whole)


# Self-loops that are followed to their end -----------------------------------------------------------------------


def worth_of_proposals(policy, transitions, rewards, is_feasible, preference, penalty):
    """Return lambda_r Q_r + lambda_c K Q_c: a rejected proposal is worth the accepted ones of its state, less K."""
    executed = feasible_part(policy, is_feasible)
    moved, paid = np.einsum("sa,sat->st", executed, transitions), np.sum(executed * rewards, axis=1)
    values = np.linalg.solve(np.eye(STATES) - GAMMA * moved, paid)
    of_accepted = rewards + GAMMA * transitions @ values
    rejected = preference[0] * values[:, None] - preference[1] * penalty
    return np.where(is_feasible, preference[0] * of_accepted, rejected)


@pytest.mark.parametrize("lowest", [-100.0, 0.0])
@pytest.mark.parametrize("penalty", [1e-6, 0.2])
@pytest.mark.parametrize("seed", range(10))
def test_improving_on_what_the_executed_actions_earn_solves_the_constrained_task(seed, penalty, lowest):
    transitions, rewards, is_feasible = random_mdp(seed, lowest)
    policy = random_policy(seed)
    for _ in range(20):
        worth = worth_of_proposals(policy, transitions, rewards, is_feasible, (0.9, 0.1), penalty)
        best = worth.argmax(axis=1)
        assert np.all(is_feasible[np.arange(STATES), best])
        policy = np.eye(ACTIONS)[best]
    constrained, _ = optimal_values(transitions, 0.9 * rewards, is_feasible)
    np.testing.assert_allclose(worth.max(axis=1), constrained, atol=1e-7)
