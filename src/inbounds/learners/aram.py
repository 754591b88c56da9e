"""ARAM (Hung, Sun and Hsieh, ICLR 2025): acceptance-rejection on an augmented two-objective MDP.

Acting: N proposals a_1, ..., a_N ~ pi(. | s; lambda); the first one in C(s) is executed. Only if all N are infeasible,
the last one is projected onto C(s). During warm-up proposals are uniform in the box, and the fallback is a uniform draw
from C(s). Evaluation executes tanh(mean), projected if it is infeasible, at the training's `preference`, (0.9, 0.1) by
default. A loaded policy samples as in training; `deterministic=True` gives the evaluated action.

Augmented MDP: the executed action gives (s, a, [r, 0], s'); every proposal rejected before it gives a self-loop, in the
paper (s, a_i, [0, -K], s). A rejection takes no time, though, and an executed action follows it: the default follows
self-loops to their end, (s, a_i, [r, -K], s'), with the discounts (gamma, 0). Q_c(s, a_i) = -K is the penalty of this
proposal alone, and rewards may have any sign (docs/method.md). K is tuned to an acceptance rate, as alpha is to an
entropy. Self-loops have a replay buffer of their own, which provides the fraction eta of a batch.

Learning: multi-objective SAC on the vector reward. lambda = (lambda_r, lambda_c) is the preference over return and
validity, Q = (Q_r, Q_c) a critic with one value per objective, j the index of the twin critics, alpha the entropy
coefficient. Actor and critics read lambda as a further input.

    critic   y = r + gamma (1 - done) (Qbar_j*(s', a'; lambda) - alpha log pi(a' | s'; lambda)),
             j* = argmin_j lambda^T Qbar_j,   loss  sum_k lambda_k (Q_k - y_k)^2 (see losses.critic_loss)
    policy   loss  alpha log pi(a | s; lambda) - min_j lambda^T Q_j(s, a; lambda), or its supremum (q_pensieve.py)
    alpha    loss  alpha (-log pi(a | s; lambda) - target entropy)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from inbounds.constraints.references import Reference
from inbounds.learners import losses, normalised_aram
from inbounds.learners.learner import Learner, proposal_noise, uniform_proposals
from inbounds.learners.networks import init_critics, init_network, narrow_around
from inbounds.learners.q_pensieve import Snapshots, empty_snapshots, supremum_value, take_snapshot
from inbounds.learners.settings import require_consistent, require_valid, usual_discount, with_presets
from inbounds.learners.step import Memory, Metrics, Outcome, Spec
from inbounds.policies.acceptance import Draw, accept_first
from inbounds.policies.gaussian import Gaussian, around_reference, gaussian_of, squash, squashed_actions
from inbounds.policies.heads import SquashedGaussian
from inbounds.policies.networks import Network, apply_network, q_values, with_preference
from inbounds.replay import Transition

REAL, AUGMENTED = "real", "augmented"
INIT_ALPHA = 0.1
"""First value of a tuned alpha."""
ETA_INTERVAL = 10_000
"""Environment steps between two decays of eta (the paper's table of hyperparameters)."""
TARGET_ENTROPY, TARGET_ENTROPY_AFTER_WARM_START = -0.5, -1.0
"""Per action dimension, where `target_entropy` is None: the best ones measured."""
PENALTY_RATE, LARGEST_ERROR = 0.001, 0.1
"""log K moves by rate * (target - acceptance rate) per environment step. Ten times faster, K is large before a young
policy has moved, and then keeps it where it is."""
PENALTY_RANGE = (0.01, 100.0)  # or further, to the first K

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "backbone": "plain",
        "proposals": 100,
        "penalty": 0.2,
        "self_loops": "discounted",
        "eta": 0.2,
        "eta_decay": 0.9,
        "target_acceptance": None,
        "min_return_weight": 0.0,
        "preference_samples": 4,
        "q_snapshots": 4,
        "alpha": 0.2,
        "entropy_ramp": 0,
        "learning_rate": 3e-4,
        "gamma": 0.99,
    },
    "normalised": normalised_aram.PRESET,
}


def per_proposal(transition: Transition, draw: Draw) -> Transition:
    """Return the transition with every proposal as its action; only those of rejected proposals are stored."""
    count, size = draw.proposals.shape[1:]
    repeated: Transition = jax.tree.map(lambda rows: jnp.repeat(rows, count, axis=0), transition)
    return repeated._replace(action=draw.proposals.reshape(-1, size))


class Params(NamedTuple):
    """Everything that gradients change, under one optimiser."""

    actor: Network
    critic: Network
    """Twin critics, stacked on a leading axis of two."""
    log_alpha: jax.Array


class AramState(NamedTuple):
    """Everything that changes during training."""

    params: Params
    target_critic: Network
    optimiser: optax.OptState
    updates: jax.Array
    eta: jax.Array
    """Fraction of the next batch that comes from the augmented buffer."""
    penalty: jax.Array
    """K."""
    feasible_fraction: jax.Array
    """Sum and count of the feasible fraction of uniform proposals, measured during warm-up."""
    snapshots: Snapshots


class UpdateNoise(NamedTuple):
    """The randomness of one update."""

    preference: jax.Array
    """(1,), uniform on [0, 1]."""
    candidates: jax.Array
    """(preference_samples - 1, 1), likewise."""
    action: jax.Array
    """(batch, action size), standard normal."""
    next_action: jax.Array


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Aram(Learner):
    """Acceptance-rejection and an augmented MDP, trained by multi-objective SAC."""

    preset: str = "default"
    """`default`: the best measured. `paper`: the paper's. `normalised`: the normalised backbone, not measured yet."""
    backbone: str = "scaled"
    """`plain`: multilayer perceptrons and squared errors, as in the paper. `scaled`: the same, with observations and
    rewards divided by scales that are measured before training. `normalised`: batch normalisation, residual blocks,
    distributional critics and return normalisation, for rewards of any sign and scale."""
    proposals: int = 1
    """N, proposals per action; projection is computed only if none is feasible. The paper has 100."""
    penalty: float = 3.0
    """K, the penalty of a rejected proposal: the first value of a tuned K."""
    self_loops: str = "followed"
    """How rejected proposals are stored. `followed`: with reward and next state of the executed action. `discounted`:
    the paper's way, which needs training rewards that are not negative. `none`: not at all."""
    dual_replay: bool = True
    """Store self-loops in a replay buffer of their own. Otherwise they are stored, and drawn, among the real
    transitions; eta and eta_decay must keep their defaults then."""
    eta: float = 0.2
    """Fraction of a batch that comes from the augmented buffer, at the beginning of training."""
    eta_decay: float = 1.0
    """Factor on eta every 10,000 environment steps; the paper has 0.9."""
    target_acceptance: float | None = 0.97
    """Raise K while fewer proposals than this fraction are feasible, and lower it above; None keeps K. Ignored unless
    self-loops are followed."""
    preference: tuple[float, float] | None = None
    """A fixed lambda that the networks do not read (SOSAC); None learns for all preferences."""
    min_return_weight: float = 0.8
    """Preferences are learnt with lambda_r uniform on [min_return_weight, 1]; 0 is the paper's Dirichlet(1, 1)."""
    preference_samples: int = 1
    """|W|, preferences in the supremum of the policy loss; 1 is lambda alone."""
    q_snapshots: int = 0
    """Critic snapshots in the supremum of the policy loss."""
    alpha: float | None = None
    """Entropy coefficient; None tunes it towards the target entropy."""
    target_entropy: float | None = None
    """Target entropy per dimension, of actions scaled to [-1, 1]; at most ln 2. None is -0.5, and -1 after a warm
    start."""
    entropy_ramp: int = 50_000
    """Updates over which the target entropy falls to that of the feasible set: by -log of the feasible fraction of the
    box, which is measured during warm-up. 0 keeps `target_entropy`."""
    student_df: float | None = None
    """Degrees of freedom of Student-t noise while acting; None is Gaussian. Updates always use the Gaussian."""
    warm_start: bool = False
    """Initialise the policy narrowly around the task's reference action, if any (not the random `warm_up` steps)."""
    critic_warmup: int = 5_000
    """Updates of the critics alone when learning begins after a warm start; then policy and alpha move too."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers of all networks; critics of the normalised backbone have a residual block for each."""
    learning_rate: float = 1e-3
    """Adam's learning rate for actor, critics and alpha."""
    gamma: float | None = None
    """Discount factor; None is 1 - 5 / horizon of the task, but at least 0.9 and at most 0.99."""
    tau: float = 0.005
    """Polyak coefficient of the target critics."""
    batch_size: int = 256
    """Transitions per update."""

    def __post_init__(self) -> None:
        """Reject values and combinations that cannot be trained."""
        require_valid(self, excluded={"penalty": 0.0, "gamma": 1.0, "hidden": ()})
        require_consistent(self)

    # Shapes ------------------------------------------------------------------------------------------------------

    @property
    def buffers(self) -> tuple[str, ...]:
        """Return the names of the replay buffers."""
        return (REAL, AUGMENTED) if self.self_loops != "none" and self.dual_replay else (REAL,)

    @property
    def objectives(self) -> int:
        """Return two: reward and penalty are stored separately, whatever the preference."""
        return 2

    @property
    def preference_size(self) -> int:
        """Return how many entries of a preference the networks read."""
        return 2 if self.preference is None else 0

    @property
    def has_scalar_critics(self) -> bool:
        """Return whether critics predict lambda^T Q itself: for one preference and one discount."""
        return self.preference is not None and self.self_loops != "followed"

    @property
    def is_normalised(self) -> bool:
        """Return whether the networks are those of the normalised backbone."""
        return self.backbone == "normalised"

    @property
    def needs_positive_rewards(self) -> bool:
        """Return whether training rewards must not be negative."""
        return self.self_loops == "discounted"

    @property
    def scales_task(self) -> bool:
        """Return whether observations and rewards are measured and scaled before training."""
        return self.backbone == "scaled"

    def gamma_of(self, spec: Spec) -> float:
        """Return gamma, or the one that suits the task's horizon."""
        return usual_discount(spec.horizon) if self.gamma is None else self.gamma

    def starts_warm(self, spec: Spec) -> bool:
        """Return whether the first policy lies narrowly around the task's reference action."""
        return self.warm_start and spec.reference_action is not None

    def init(self, key: jax.Array, spec: Spec) -> Any:
        """Return new networks, target critics and optimiser state."""
        if self.is_normalised:
            return normalised_aram.init(self, key, spec)
        actor_key, *critic_keys = jax.random.split(key, 3)
        inputs = spec.observation_size + self.preference_size
        actor = init_network(actor_key, (inputs, *self.hidden, 2 * spec.box.size), spec.inputs)
        if self.starts_warm(spec):
            actor = narrow_around(actor, spec.box, spec.reference_action)
        outputs = 1 if self.has_scalar_critics else 2
        critic = init_critics(critic_keys, inputs + spec.box.size, self.hidden, outputs, spec.inputs)
        alpha = INIT_ALPHA if self.alpha is None else self.alpha
        params = Params(actor, critic, jnp.asarray(math.log(alpha), jnp.float32))
        return AramState(
            params=params,
            target_critic=critic,
            optimiser=self.optimiser().init(params),
            updates=jnp.zeros((), jnp.int32),
            eta=jnp.asarray(self.eta, jnp.float32),
            penalty=jnp.asarray(self.penalty, jnp.float32),
            feasible_fraction=jnp.zeros(2, jnp.float32),
            snapshots=empty_snapshots(critic, self.q_snapshots),
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Return one Adam for actor, critics and alpha."""
        return optax.adam(self.learning_rate)

    # Acting ------------------------------------------------------------------------------------------------------

    def preferences(self, uniform: jax.Array) -> jax.Array:
        """Map numbers from [0, 1] to preferences (lambda_r, 1 - lambda_r), or all of them to the fixed one."""
        if self.preference is not None:
            return jnp.broadcast_to(jnp.asarray(self.preference, jnp.float32), (*uniform.shape, 2))
        weight = self.min_return_weight + (1.0 - self.min_return_weight) * uniform
        return jnp.stack([weight, 1.0 - weight], axis=-1)

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw the preference of an episode."""
        return self.preferences(jax.random.uniform(key, shape))

    def with_preference(self, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Append lambda to the observation, unless it is fixed."""
        return observation if self.preference is not None else with_preference(observation, preference)

    def observed_reference(self, spec: Spec) -> Reference | None:
        """Return where the observation holds the reference action that the mean is a residual around, if any."""
        reference = spec.reference_action
        return reference if self.warm_start and isinstance(reference, Reference) else None

    def head(self, spec: Spec) -> SquashedGaussian:
        """Describe the policy for deployment."""
        return SquashedGaussian(
            proposals=self.proposals,
            preference_size=self.preference_size,
            min_return_weight=self.min_return_weight,
            student_df=self.student_df,
            reference=self.observed_reference(spec),
        )

    def policy(self, actor: Network, spec: Spec, observation: jax.Array, preference: jax.Array) -> Gaussian:
        """Return pi(. | s; lambda) before squashing."""
        output = apply_network(actor, self.with_preference(observation, preference))
        return around_reference(gaussian_of(output), spec.box, observation, self.observed_reference(spec))

    def actor(self, state: Any) -> Network:
        """Return the plain network that acts."""
        if self.is_normalised:
            return normalised_aram.plain_actor(self, state)
        network: Network = state.params.actor
        return network

    def act(
        self,
        state: Any,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        is_random: bool,
    ) -> Draw:
        """Draw all N proposals in one forward pass and execute the first feasible one."""
        shape = (observation.shape[1], self.proposals, spec.box.size)
        if is_random:
            uniform = uniform_proposals(keys, shape)
            further = jax.vmap(lambda key: jax.random.fold_in(key, 1))(keys)
            return accept_first(
                spec.constraint,
                observation,
                spec.box.rescale(uniform),
                fallback=lambda seen, last: jax.vmap(spec.constraint.sample)(further, seen),
            )
        noise_keys = jax.vmap(jax.random.split)(keys)[:, 0]  # the second key is not used; it keeps old draws
        noise = jax.vmap(lambda key: proposal_noise(key, shape, self.student_df))(noise_keys)
        policy = jax.vmap(lambda own, seen, preference: self.policy(self.actor(own), spec, seen, preference))(
            state, observation, context
        )
        repeated = jax.tree.map(lambda array: array[..., None, :], policy)
        return accept_first(spec.constraint, observation, squashed_actions(repeated, spec.box, noise))

    def export(self, state: Any) -> dict[str, Any]:
        """Return the actor; acceptance and projection need nothing else that was learnt."""
        return {"actor": self.actor(state)}

    def with_exported(self, state: Any, exported: Any) -> Any:
        """Return the state that acts with an exported actor."""
        return state._replace(
            params=state.params._replace(actor=jax.tree.map(jnp.asarray, exported["actor"]))
        )

    # Replay ------------------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions (s, a, [r, 0], s') and a self-loop per rejected proposal."""
        none, one = jnp.zeros_like(outcome.reward), jnp.ones_like(outcome.reward)
        reward = jnp.stack([outcome.reward, none], axis=-1)
        real = Transition(observation, draw.action, reward, outcome.not_done, outcome.next_observation)
        if self.self_loops == "none":
            return {REAL: Memory(real, None)}
        loop = real._replace(
            reward=jnp.stack([outcome.reward, -one], axis=-1)
        )  # the loss multiplies by the present K
        if self.self_loops == "discounted":
            reward = jnp.stack([none, -self.penalty * one], axis=-1)
            loop = Transition(observation, draw.action, reward, one, observation)
        loops = per_proposal(loop, draw)
        is_rejected = draw.is_rejected.reshape(-1)
        if self.dual_replay:
            return {REAL: Memory(real, None), AUGMENTED: Memory(loops, is_rejected)}
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), real, loops)
        return {REAL: Memory(together, jnp.concatenate([jnp.ones(len(observation), bool), is_rejected]))}

    def adapt(
        self, state: Any, spec: Spec, draw: Draw, outcome: Outcome, step: jax.Array, is_random: bool
    ) -> Any:
        """Measure the feasible fraction of the box during warm-up; decay eta; tune K; take snapshots."""
        if is_random:
            measured = jnp.stack([jnp.sum(draw.acceptance), jnp.asarray(draw.acceptance.size, jnp.float32)])
            state = state._replace(feasible_fraction=state.feasible_fraction + measured)
        if self.eta_decay < 1.0:
            eta = self.eta * self.eta_decay ** (step // ETA_INTERVAL).astype(jnp.float32)
            state = state._replace(eta=eta)
        if self.is_normalised:
            state = normalised_aram.observed(self, state, spec, outcome)
        if self.q_snapshots and not is_random:
            snapshots = take_snapshot(state.snapshots, state.params.critic, state.updates)
            state = state._replace(snapshots=snapshots)
        if is_random or self.target_acceptance is None or self.self_loops != "followed":
            return state
        error = jnp.minimum(self.target_acceptance - jnp.mean(draw.acceptance), LARGEST_ERROR)
        penalty = state.penalty * jnp.exp(PENALTY_RATE * draw.acceptance.size * error)
        least, most = PENALTY_RANGE
        return state._replace(penalty=jnp.clip(penalty, min(least, self.penalty), max(most, self.penalty)))

    def batch_fractions(self, state: Any, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta if self-loops have a buffer of their own."""
        return jnp.zeros(0) if len(self.buffers) == 1 else jnp.reshape(state.eta, 1)

    # Learning ----------------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> Any:
        """Draw lambda, the other candidates of the supremum, and the noise of both actions."""
        if self.is_normalised:
            return normalised_aram.noise(self, key, spec)
        preference_key, action_key = jax.random.split(key)
        uniform = jax.random.uniform(preference_key, (self.preference_samples, 1))
        normal = jax.random.normal(action_key, (2, self.batch_size, spec.box.size))
        return UpdateNoise(uniform[0], uniform[1:], normal[0], normal[1])

    def update(self, state: Any, spec: Spec, batch: Transition, noise: Any) -> tuple[Any, Metrics]:
        """Take one gradient step of actor, critics and alpha, then move the target critics."""
        if self.is_normalised:
            return normalised_aram.update(self, state, spec, batch, noise)
        gradient, metrics = jax.grad(self.loss, has_aux=True)(state.params, state, spec, batch, noise)
        if self.alpha is not None:
            gradient = gradient._replace(log_alpha=jnp.zeros(()))
        steps, optimiser = self.optimiser().update(gradient, state.optimiser)
        if self.critic_warmup and self.starts_warm(spec):
            # Adam keeps averaging: with moments of zero at a high count, its first steps would be 3 times too long.
            moves = (state.updates >= self.critic_warmup).astype(jnp.float32)
            actor, log_alpha = jax.tree.map(lambda leaf: moves * leaf, (steps.actor, steps.log_alpha))
            steps = steps._replace(actor=actor, log_alpha=log_alpha)
        params = optax.apply_updates(state.params, steps)
        state = state._replace(
            params=params,
            target_critic=optax.incremental_update(params.critic, state.target_critic, self.tau),
            optimiser=optimiser,
            updates=state.updates + 1,
        )
        return state, metrics

    def loss(
        self, params: Params, state: AramState, spec: Spec, batch: Transition, noise: UpdateNoise
    ) -> tuple[jax.Array, Metrics]:
        """Return the sum of critic, policy and alpha losses; stop-gradients keep them apart."""
        preference = jnp.broadcast_to(self.preferences(noise.preference), (batch.observation.shape[0], 2))
        alpha = jax.lax.stop_gradient(jnp.exp(params.log_alpha))
        frozen_actor, frozen_critic = jax.lax.stop_gradient((params.actor, params.critic))
        now = squash(self.policy(params.actor, spec, batch.observation, preference), noise.action)
        after = squash(self.policy(frozen_actor, spec, batch.next_observation, preference), noise.next_action)
        inputs = self.with_preference(batch.observation, preference)
        next_inputs = self.with_preference(batch.next_observation, preference)

        weights, reward, gamma = preference, batch.reward, jnp.asarray(self.gamma_of(spec))
        if self.self_loops == "followed":
            # Q_c is the penalty of the proposal at hand; those of later ones are not added.
            reward = reward * jnp.stack([jnp.ones(()), state.penalty])
            gamma = gamma * jnp.array([1.0, 0.0])
        if self.has_scalar_critics:
            weights = jnp.ones((*preference.shape[:-1], 1))
            reward = jnp.sum(batch.reward * preference, axis=-1, keepdims=True)

        next_q = q_values(state.target_critic, next_inputs, after.value)
        target = jax.vmap(losses.bellman_target, (0, 0, 0, 0, 0, None, None))(
            reward, batch.not_done, next_q, weights, after.log_density, alpha, gamma
        )
        q = q_values(params.critic, inputs, spec.box.normalise(batch.action))
        per_twin = jax.vmap(jax.vmap(losses.critic_loss, (0, None, None)))(q, target, weights)
        critic_loss = jnp.mean(jnp.sum(per_twin, axis=1))

        if self.preference_samples == 1 and self.q_snapshots == 0:
            of_policy = q_values(frozen_critic, inputs, now.value)
            value = jnp.min(jnp.sum(of_policy * weights[:, None], axis=-1), axis=-1)
        else:
            drawn = self.preferences(noise.candidates)[:, 0]
            candidates = jnp.concatenate([preference[:1], drawn])
            value = supremum_value(
                frozen_critic, state.snapshots, batch.observation, now.value, candidates, weights
            )
        policy_loss = jnp.mean(alpha * now.log_density - value)

        target_entropy = self.entropy_target(state, spec)
        alpha_loss = jnp.mean(losses.alpha_loss(params.log_alpha, now.log_density, target_entropy))
        metrics = {
            "critic_loss": critic_loss,
            "policy_loss": policy_loss,
            "value": jnp.mean(jnp.sum(q * weights[:, None], axis=-1)),
            "entropy": -jnp.mean(now.log_density),
            "alpha": alpha,
            "penalty": state.penalty,
        }
        if len(self.buffers) == 2:
            metrics["eta"] = state.eta
        return critic_loss + policy_loss + alpha_loss, metrics

    def entropy_target(self, state: Any, spec: Spec) -> jax.Array:
        """Return the target entropy of the policy in [-1, 1]^d.

        It begins at `target_entropy` per dimension and falls in a straight line, over `entropy_ramp` updates, by
        -log(feasible fraction of the box; 1 without warm-up): a policy that fills C(s) has that much less entropy.
        """
        if (per_dimension := self.target_entropy) is None:
            per_dimension = TARGET_ENTROPY_AFTER_WARM_START if self.starts_warm(spec) else TARGET_ENTROPY
        first = jnp.asarray(float(spec.box.size) * per_dimension)
        if not self.entropy_ramp:
            return first
        total, count = state.feasible_fraction
        fraction = jnp.where(count > 0, (total + 1e-6) / jnp.maximum(count, 1.0), 1.0)
        last = first + jnp.log(jnp.clip(fraction, 1e-6, 1.0))
        return first + jnp.minimum(state.updates / self.entropy_ramp, 1.0) * (last - first)
