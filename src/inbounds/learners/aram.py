"""ARAM: acceptance-rejection on an augmented two-objective MDP, learnt for all preferences by multi-objective SAC."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from inbounds.learners.aram_acting import drawn, drawn_at_first, first_actor, law
from inbounds.learners.aram_settings import (
    begins_at_start,
    held_acceptance,
    moves_share,
    range_of_share,
    refuse_contradictions,
)
from inbounds.learners.aram_update import (
    AramState,
    Trained,
    UpdateNoise,
    moved_drop,
    total_loss,
    with_snapshot,
)
from inbounds.learners.learner import Memory, Metrics, Outcome, Spec, with_presets
from inbounds.learners.value_scale import moved_to_moments, rescaled_critic, unit_scale, with_moments
from inbounds.policies.acceptance import Draw
from inbounds.policies.networks import export_network, init_network
from inbounds.policies.proposal import squash
from inbounds.replay.ring import Transition

REAL, AUGMENTED = "real", "augmented"


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": {
        "augmented_share": 0.2,
        "share_decay": 0.9,
        "acceptance_lever": "none",
        "temperature": 0.2,
        "policy_preferences": 4,
        "snapshots": 4,
        "entropy_reference": "box",
        "entropy_ramp": 0,
        "least_return_weight": 0.0,
        "start": "box",
        "scale_observations": False,
        "scale_rewards": False,
        "gamma": 0.99,
    },
}


@with_presets(PRESETS)
@dataclasses.dataclass(frozen=True)
class Aram:
    """Multi-objective SAC on the augmented MDP; every ingredient of the paper is a switch."""

    preset: str = "default"
    """`default`: what was measured to be best. `paper`: the paper's table."""
    proposals: int = 100
    """Proposals per action; projection happens only if none is feasible. 1 switches acceptance-rejection off."""
    augmented: bool = True
    """Turn rejected proposals into self-loops with reward [0, -penalty]."""
    dual_replay: bool = True
    """Keep self-loops in a ring of their own; otherwise they share the ring of real transitions."""
    penalty: float = 0.2
    """K, the price of a rejected proposal."""
    augmented_share: float = 0.2
    """eta, the share of a batch that comes from the augmented ring (its start, where it changes)."""
    share_decay: float = 1.0
    """Factor on eta every `share_interval` environment steps of a seed."""
    share_interval: int = 10_000
    """Environment steps between two decays of eta."""
    acceptance_target: float | None = None
    """Hold the acceptance rate here by a controller. None is 0.99, but unless `share_range` asks for it there is no
    controller where a policy begins at the task's own start, or without a free eta (`augmented`, `dual_replay`,
    `share_decay`)."""
    acceptance_lever: Literal["share", "entropy", "none"] = "share"
    """What the controller moves: eta, or the entropy target, which then falls only as long as it has to; or nothing."""
    share_range: tuple[float, float] | None = None
    """Least and largest eta of the controller, with `augmented_share`, its start, between them; None only lowers it,
    to a tenth at most."""
    preference: tuple[float, float] | None = None
    """None learns for all preferences; a fixed pair gives SOSAC: scalar critics for this pair alone."""
    least_return_weight: float = 0.8
    """Preferences are learnt whose weight of the return is at least this; 0 is all of them."""
    policy_preferences: int = 1
    """Preferences over which the policy loss takes the supremum; 1 is the plain loss."""
    snapshots: int = 0
    """Critic snapshots over which the policy loss takes the supremum; 0 is the plain loss."""
    snapshot_interval: int = 1_000
    """Updates between two snapshots, which are taken before a step, one at most."""
    snapshot_start: int = 20_000
    """Updates before the first interval, at whose end the first snapshot is taken."""
    half_precision_search: bool = False
    """Search the supremum over preferences in bfloat16; the winner is then evaluated in full precision."""
    critic_loss: Literal["componentwise", "scalarised"] = "componentwise"
    """`componentwise` is the published code's form, `scalarised` the paper's equation."""
    value_bins: int = 0
    """Bins over which critics spread the likelihood of a value, learnt by cross-entropy; 0 learns the value itself."""
    batch_normalised: bool = False
    """Normalise the critics' hidden layers over batches; such critics are their own targets, and `tau` is idle."""
    return_steps: int = 1
    """Steps of an episode whose rewards a target adds up before it asks the critics; their entropy, and what was
    rejected on the way, are left out."""
    temperature: float | None = None
    """alpha; None tunes it towards the target entropy."""
    initial_temperature: float = 0.1
    """Where a tuned temperature starts."""
    entropy_target: float | None = None
    """Target entropy in the squashed box, per dimension (see `entropy_reference`). None is -0.5, but -1, the usual
    one, where a policy begins at the task's own start."""
    entropy_reference: Literal["box", "feasible"] = "feasible"
    """`feasible` shifts the target by the log of the feasible share of the box, measured during warm-up."""
    entropy_at_first: float | None = None
    """Where the target begins to fall, per dimension: ln 2 is a uniform law on the box; None begins at
    `entropy_target`."""
    entropy_ramp: int = 50_000
    """Updates over which the target falls from where it begins to the feasible set's (or box's); 0 begins there.
    Steps over which a controller can move it through its whole range."""
    entropy_of: Literal["policy", "truncated"] = "policy"
    """Whose log-density the losses use: the policy's, or that of what acts, the policy restricted to C(s)."""
    truncation_draws: int = 16
    """Draws per state that estimate how much of the policy lies in C(s)."""
    target: Literal["proportional", "student", "gaussian-from-student"] = "proportional"
    """Law of accepted draws: the policy on C(s), a Student-t on C(s), or the policy by way of Student-t proposals."""
    degrees: float = 5.0
    """Degrees of freedom of the Student-t."""
    fallback: Literal["projected", "published"] = "projected"
    """What is stored after a projection: the projected action with [r, 0], or the raw one with [r, -K]."""
    warm_up: Literal["feasible", "box"] = "feasible"
    """First random steps: uniform on C(s), or uniform in the box with projection if every proposal fails."""
    normalise_values: bool = False
    """Let critics predict values relative to the running mean and deviation of their targets, per objective."""
    preference_per_sample: bool = False
    """Draw a preference for every row of a batch instead of one for the whole batch."""
    scale_observations: bool = True
    """Let networks see observations relative to what uniformly feasible actions meet, measured before training."""
    scale_rewards: bool = True
    """Train on rewards relative to what uniformly feasible actions earn, in place of the task's own scale."""
    start: Literal["box", "task"] = "task"
    """Where the first policy lies: anywhere in the box, or narrowly around the task's own start, where it has one. Such
    a policy explores less (see `entropy_target`, `acceptance_target`)."""
    critic_lead: int = 5_000
    """Updates that the critics take before a policy that began at the task's start, and its temperature, move."""
    last_resort: Literal["projection", "ray", "uniform"] = "projection"
    """What acts when every proposal is infeasible in training: the nearest action, the last one's ray from inside C(s)
    to its boundary, or a draw from C(s)."""
    averaging: int = 0
    """Updates over which the policy that is judged and kept averages the actor's weights; 0 keeps the actor itself."""
    hidden: tuple[int, ...] = (256, 256)
    """Width of the hidden layers."""
    learning_rate: float = 3e-4
    """Adam's step size, the same for actor, critics and temperature."""
    gamma: float | None = None
    """Discount factor; None is the task's, which is 0.99 unless it says otherwise."""
    tau: float = 0.005
    """Share of the critic that moves into its target after every update."""
    batch_size: int = 256
    """Transitions per update."""

    presets: ClassVar[dict[str, dict[str, Any]]]

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        refuse_contradictions(self)

    # Shapes ------------------------------------------------------------------------------------------------------

    @property
    def rings(self) -> tuple[str, ...]:
        """Return the rings: real, and augmented where it is kept apart."""
        return (REAL, AUGMENTED) if self.augmented and self.dual_replay else (REAL,)

    @property
    def objectives(self) -> int:
        """Return two: the task's reward and the constraint's penalty are always stored apart."""
        return 2

    @property
    def conditions(self) -> int:
        """Return how many entries of a preference the networks see."""
        return 0 if self.preference is not None else 2

    def init(self, key: jax.Array, spec: Spec) -> AramState:
        """Return fresh networks, their target, snapshots that do not count yet and a fresh optimiser."""
        actor_key, *critic_keys = jax.random.split(key, 3)
        inputs = spec.observation_size + self.conditions
        outputs = 1 if self.preference is not None else 2
        sizes = (inputs + spec.box.size, *self.hidden, outputs * max(self.value_bins, 1))
        twins = [init_network(twin, sizes, spec.inputs) for twin in critic_keys]
        critic = jax.tree.map(lambda *layers: jnp.stack(layers), *twins)
        if self.value_bins:
            # All bins equally likely, a value of 0: random weights on the outermost bins would say thousands.
            critic = (*critic[:-1], jax.tree.map(jnp.zeros_like, critic[-1]))
        actor = first_actor(self, actor_key, spec)
        temperature = self.temperature if self.temperature is not None else self.initial_temperature
        trained = Trained(actor, critic, jnp.asarray(math.log(temperature), jnp.float32))
        return AramState(
            trained=trained,
            target_critic=critic,
            # Copies, not zeros: what is masked is still differentiated, and a scale of zero would divide by it.
            snapshots=jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.snapshots, axis=0), critic),
            snapshots_taken=jnp.zeros((), jnp.int32),
            optimiser=self.optimiser().init(trained),
            updates=jnp.zeros((), jnp.int32),
            augmented_share=jnp.asarray(self.augmented_share, jnp.float32),
            feasible_share=jnp.zeros(2, jnp.float32),
            entropy_drop=jnp.zeros((), jnp.float32),
            scale=unit_scale(outputs),
            averaged=actor if self.averaging else (),
        )

    def optimiser(self) -> optax.GradientTransformation:
        """Return Adam over actor, critics and temperature together: one pass over all parameters."""
        return optax.adam(self.learning_rate)

    # Acting ------------------------------------------------------------------------------------------------------

    def new_context(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Draw one preference per episode; (x, 1 - x) with x uniform on [0, 1] is the paper's Dirichlet(1, 1)."""
        return self.preferences(jax.random.uniform(key, shape))

    def preferences(self, uniform: jax.Array) -> jax.Array:
        """Turn uniform numbers into preferences, or into the fixed one."""
        if self.preference is not None:
            return jnp.broadcast_to(jnp.asarray(self.preference, jnp.float32), (*uniform.shape, 2))
        weight = self.least_return_weight + (1.0 - self.least_return_weight) * uniform
        return jnp.stack([weight, 1.0 - weight], axis=-1)

    def act(
        self,
        state: AramState,
        spec: Spec,
        observation: jax.Array,
        context: jax.Array,
        keys: jax.Array,
        warm: bool,
    ) -> Draw:
        """Draw all proposals in one forward pass and take the first feasible one."""
        if warm:
            return drawn_at_first(self, spec, observation, keys)
        return drawn(self, state.trained.actor, spec, observation, context, keys)

    def with_preference(self, observation: jax.Array, preference: jax.Array) -> jax.Array:
        """Append the preference to the observation, unless it is fixed."""
        if self.preference is not None:
            return observation
        spread = jnp.broadcast_to(preference, (*observation.shape[:-1], 2))
        return jnp.concatenate([observation, spread], axis=-1)

    def export(self, state: AramState) -> dict[str, Any]:
        """Return the actor: acceptance and projection need nothing else that was learnt."""
        return export_network("actor", state.judged_actor)

    def deterministic(
        self, state: AramState, spec: Spec, observation: jax.Array, preference: jax.Array
    ) -> jax.Array:
        """Return tanh of the mean in the environment's units, before any projection."""
        centre = law(self, state.judged_actor, spec, observation, preference).mean
        return spec.box.stretch(jnp.tanh(centre))

    def samples(
        self,
        state: AramState,
        spec: Spec,
        observation: jax.Array,
        preference: jax.Array,
        key: jax.Array,
        count: int,
    ) -> jax.Array:
        """Draw raw actions of the policy network, before acceptance."""
        one = law(self, state.judged_actor, spec, observation, preference)
        proposal = jax.tree.map(lambda leaf: leaf[..., None, :], one)
        noise = jax.random.normal(key, (*observation.shape[:-1], count, spec.box.size), jnp.float32)
        return spec.box.stretch(squash(proposal, noise).value)

    # Remembering -------------------------------------------------------------------------------------------------

    def remember(
        self, spec: Spec, observation: jax.Array, draw: Draw, outcome: Outcome
    ) -> Mapping[str, Memory]:
        """Return the real transitions with [r, 0] and one self-loop (s, a, [0, -K], s) per rejected proposal."""
        action, cost = draw.action, jnp.zeros_like(outcome.reward)
        if self.fallback == "published":
            action = jnp.where(draw.is_projected[:, None], draw.proposals[:, -1], action)
            cost = jnp.where(draw.is_projected, -self.penalty, cost)
        real = Transition(
            observation,
            action,
            jnp.stack([outcome.reward, cost], axis=-1),
            outcome.discount,
            outcome.next_observation,
        )
        if not self.augmented:
            return {REAL: Memory(real, None)}
        environments, count, size = draw.proposals.shape
        rows, is_rejected = environments * count, draw.is_rejected.reshape(-1)
        repeated = jnp.repeat(observation, count, axis=0)
        loops = Transition(
            observation=repeated,
            action=draw.proposals.reshape(rows, size),
            reward=jnp.broadcast_to(jnp.asarray([0.0, -self.penalty], jnp.float32), (rows, 2)),
            discount=jnp.ones(rows),
            next_observation=repeated,
        )
        if self.dual_replay:
            return {REAL: Memory(real, None), AUGMENTED: Memory(loops, is_rejected)}
        together = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), real, loops)
        return {REAL: Memory(together, jnp.concatenate([jnp.ones(environments, bool), is_rejected]))}

    def adapt(self, state: AramState, spec: Spec, draw: Draw, step: jax.Array, warm: bool) -> AramState:
        """Measure the feasible share of the box during warm-up; later take snapshots and hold acceptance at its target.

        The controller is an integrator, on eta (too many rejections raise the share of self-loops that the critics
        see, too few lower it; an error of 0.1 moves eta by 0.1 in 1,000 environment steps), or on the entropy target,
        at most as fast as `entropy_ramp` says.
        """
        del step
        if warm:
            measured = jnp.stack([jnp.sum(draw.acceptance), jnp.asarray(draw.acceptance.size, jnp.float32)])
            return state._replace(feasible_share=state.feasible_share + measured)
        state = with_snapshot(self, state)
        if self.normalise_values:
            state = rescaled(state)
        target = held_acceptance(self, spec)
        if target is None:
            return state
        error = target - jnp.mean(draw.acceptance)
        if self.acceptance_lever == "entropy":
            return state._replace(entropy_drop=moved_drop(self, state, draw, error))
        moved = state.augmented_share + 1e-3 * draw.acceptance.size * error
        return state._replace(augmented_share=jnp.clip(moved, *range_of_share(self)))

    def shares(self, state: AramState, spec: Spec, step: jax.Array) -> jax.Array:
        """Return eta: scheduled by the environment steps of this seed, or where the controller has put it."""
        if len(self.rings) == 1:
            return jnp.zeros(0)
        if moves_share(self, spec):
            return state.augmented_share[None]
        periods = (step // self.share_interval).astype(jnp.float32)
        return (self.augmented_share * self.share_decay**periods)[None]

    # Learning ----------------------------------------------------------------------------------------------------

    def noise(self, key: jax.Array, spec: Spec) -> UpdateNoise:
        """Draw lambda, the further candidates of the supremum, and the noise of both action samples."""
        preference_key, action_key = jax.random.split(key)
        rows = self.batch_size if self.preference_per_sample else 1
        uniform = jax.random.uniform(preference_key, (self.policy_preferences, rows))
        draws = (self.truncation_draws,) if self.entropy_of == "truncated" else ()
        normal = jax.random.normal(action_key, (2, *draws, self.batch_size, spec.box.size))
        return UpdateNoise(uniform[0], uniform[1:], normal[0], normal[1])

    def update(
        self, state: AramState, spec: Spec, batch: Transition, noise: UpdateNoise
    ) -> tuple[AramState, Metrics]:
        """Take one step of actor, critics and temperature on the same minibatch, then move the target critic."""
        preference = jnp.broadcast_to(self.preferences(noise.preference), (batch.observation.shape[0], 2))
        gradient, (metrics, target) = jax.grad(total_loss, argnums=1, has_aux=True)(
            self, state.trained, state, spec, batch, noise, preference
        )
        if self.temperature is not None:
            gradient = gradient._replace(log_temperature=jnp.zeros(()))
        steps, optimiser = self.optimiser().update(gradient, state.optimiser)
        if self.critic_lead and begins_at_start(self, spec):
            # Adam goes on averaging meanwhile: with moments of zero its first steps would be three times too long.
            moves = (state.updates >= self.critic_lead).astype(jnp.float32)
            held = jax.tree.map(lambda leaf: moves * leaf, (steps.actor, steps.log_temperature))
            steps = steps._replace(actor=held[0], log_temperature=held[1])
        trained = optax.apply_updates(state.trained, steps)
        target_critic = optax.incremental_update(trained.critic, state.target_critic, self.tau)
        updates = state.updates + 1
        following = state._replace(
            trained=trained, target_critic=target_critic, optimiser=optimiser, updates=updates
        )
        if self.averaging:
            averaged = optax.incremental_update(trained.actor, state.averaged, 1.0 / self.averaging)
            following = following._replace(averaged=averaged)
        if self.normalise_values:
            following = following._replace(scale=with_moments(state.scale, target, updates))
        return following, metrics


def rescaled(state: AramState) -> AramState:
    """Move the scale to the targets' moments without changing any value."""
    old, new = state.scale, moved_to_moments(state.scale)
    return state._replace(
        trained=state.trained._replace(critic=rescaled_critic(state.trained.critic, old, new)),
        target_critic=rescaled_critic(state.target_critic, old, new),
        snapshots=rescaled_critic(state.snapshots, old, new),
        scale=new,
    )
