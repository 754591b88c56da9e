"""The choices of a training run, refused before it starts where they cannot work or do not fit into memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inbounds.errors import ConfigurationError
from inbounds.limits import is_number, is_whole, require_moderate
from inbounds.reading import COUNT, LARGEST_NUMBER, SEED

if TYPE_CHECKING:
    import jax

    from inbounds.learners.learner import Learner
    from inbounds.tasks.task import Task

MOST_STEPS = 2_000_000_000
"""Environment steps of a seed: the device counts them in 32 bits, and all environments step together."""
MOST_COUNTED = COUNT.most
"""Of every other whole number: what a run folder is read back with."""
LEAST = {
    **{"steps": 1, "seed": 0, "seeds": 1, "environments": 1, "warm_up": 0, "capacity": 1, "episodes": 1},
    **{"evaluate_every": 0, "checkpoint_every": 0, "keep": 1, "threads": 0},
}
"""The whole numbers among the choices, and how small they may be."""
CHANGEABLE = (
    *("steps", "evaluate_every", "checkpoint_every", "keep", "threads", "device", "deterministic", "out"),
)
"""Settings that a resumed run may have others of: what it has learnt means the same under them."""


@dataclasses.dataclass(frozen=True)
class TrainingConfig:
    """How long, how wide and where to train; the learner's own settings stand beside it."""

    steps: int = 1_000_000
    """Environment steps of every seed."""
    seed: int = 0
    """First seed; the others follow it."""
    seeds: int = 1
    """Independent seeds trained at once on one device."""
    environments: int | None = None
    """Environments per seed; by default 1 on a CPU and 16 on a GPU. Updates keep pace with steps."""
    updates_per_step: float = 1.0
    """Gradient steps per environment step."""
    warm_up: int | None = None
    """Random steps before learning starts (`learning_starts` of other libraries); by default min(10,000, steps / 10),
    and none for on-policy learners."""
    capacity: int = 1_000_000
    """Transitions that each replay buffer holds."""
    evaluate_every: int = 10_000
    """Environment steps between two evaluations; 0 evaluates at the end only."""
    episodes: int | None = None
    """Episodes per evaluation and seed; by default what the task asks for, 100 short ones or 5 to 10 long ones."""
    scale_observations: bool | None = None
    """Scale observations by those of uniformly feasible actions, measured beforehand; None is True for ARAM, except
    with `preset="paper"`, and False for the other learners."""
    scale_rewards: bool | None = None
    """Train on rewards relative to those of uniformly feasible actions; None as above."""
    preference: tuple[float, float] = (0.9, 0.1)
    """Preference at which policies are evaluated."""
    checkpoint_every: int = 100_000
    """Environment steps between two checkpoints; 0 keeps the final one only."""
    keep: int = 1
    """How many of the newest checkpoints are kept; where the newest is damaged, a run resumes from the one before."""
    threads: int = 0
    """Threads that step host environments, processes for those of a user (`ib.Task`); 0 uses every core, or what
    OMP_NUM_THREADS grants."""
    device: str | None = None
    """`cpu` or `gpu`; by default what JAX finds."""
    deterministic: bool = False
    """Ask the GPU for reproducible kernels, at some cost in speed."""
    out: Path | None = None
    """Run folder; by default runs/TASK-LEARNER-TIME."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the remedy."""
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is None and name in ("environments", "warm_up", "episodes"):
                continue
            if not is_whole(value, least):
                raise ConfigurationError(f"{name}={value!r} must be at least {least}, a whole number.")
        require_moderate(vars(self))
        self._require_readable()
        if self.warm_up is not None and self.warm_up >= self.steps:
            raise ConfigurationError(
                f"warm_up={self.warm_up} is not shorter than steps={self.steps}, so nothing would be learnt. "
                f"Lower warm_up or raise steps."
            )
        if not is_number(self.updates_per_step) or self.updates_per_step <= 0:
            raise ConfigurationError(f"updates_per_step={self.updates_per_step!r} must be positive.")
        if not is_preference(self.preference):
            raise ConfigurationError(
                f"preference={self.preference!r} is not a pair of non-negative weights. Pass (0.9, 0.1), say."
            )
        for name in ("scale_observations", "scale_rewards"):
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigurationError(f"{name}={getattr(self, name)!r} must be True, False or None.")
        if not isinstance(self.deterministic, bool):
            raise ConfigurationError(f"deterministic={self.deterministic!r} must be True or False.")
        if not isinstance(self.device, str | None):
            raise ConfigurationError(f"device={self.device!r} is not a device. Pass 'cpu', 'gpu' or None.")

    def _require_readable(self) -> None:
        """Refuse numbers that the run folder could hold but not give back: such a run would be lost."""
        last = int(self.seed) + int(self.seeds) - 1
        if last > SEED.most:
            raise ConfigurationError(
                f"seed={self.seed} with seeds={self.seeds} ends at {last}, and the largest seed is 2**63 - 1. "
                f"Lower seed, to seed % 2**32 for example."
            )
        for name in LEAST:
            value, most = getattr(self, name), MOST_STEPS if name == "steps" else MOST_COUNTED
            if name != "seed" and value is not None and value > most:
                raise ConfigurationError(f"{name}={value}, but at most {most:,} are possible. Lower it.")

    def episodes_of(self, task: Task) -> int:
        """Return how many episodes evaluate a policy while it learns."""
        return self.episodes or task.evaluation_episodes

    def warm_up_steps(self, learner: Learner) -> int:
        """Return the length of the random phase; an on-policy learner acts and learns from the first step on."""
        if self.warm_up is not None:
            return self.warm_up
        return 0 if is_on_policy(learner) else min(10_000, self.steps // 10)


def is_preference(value: Any) -> bool:
    """Tell whether a setting is a pair of weights, such as a run folder is read back with."""
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(is_number(one) and 0 <= one <= LARGEST_NUMBER for one in value)
    )


def seed_keys(seed: int, seeds: int) -> jax.Array:
    """Return the root key of every seed, the same whether it is trained alone or with others."""
    import jax

    wanted = range(int(seed), int(seed) + seeds)
    return jax.numpy.stack([_with_high_bits(jax.random.key(one & LOW_BITS), one) for one in wanted])


def folded(key: jax.Array, seed: int) -> jax.Array:
    """Return a key that a seed of up to 63 bits was folded into."""
    import jax

    return _with_high_bits(jax.random.fold_in(key, seed & LOW_BITS), seed)


LOW_BITS = 2**32 - 1


def _with_high_bits(key: jax.Array, seed: int) -> jax.Array:
    """Fold in the bits of a seed above the lowest 32, which JAX forgets or refuses; smaller seeds keep their keys."""
    import jax

    return jax.random.fold_in(key, seed >> 32) if seed >> 32 else key


def is_on_policy(learner: Learner) -> bool:
    """Tell whether a learner uses what it did once, a rollout at a time, instead of keeping a replay."""
    return learner.rollout > 0


def require_learnable(config: TrainingConfig, learner: Learner) -> None:
    """Refuse a replay that could never fill a batch."""
    if config.capacity < learner.batch_size:
        raise ConfigurationError(
            f"capacity={config.capacity} is smaller than batch_size={learner.batch_size}, so the learner would wait "
            f"for ever. Raise capacity or lower batch_size."
        )
    if config.warm_up_steps(learner) < 1 and not is_on_policy(learner):
        raise ConfigurationError(
            "at least one warm-up step is needed before the first update. Raise warm_up."
        )


COPIES_ON_CPU = 2
"""Replay, and its copy while a checkpoint is written; on a GPU the copy is in the host's memory."""
SHARE_FOR_REPLAY = 0.9
"""What is left of a device's memory beside compiled programs and their temporary arrays."""


def bytes_of(shapes: Any) -> int:
    """Return the size of all arrays of a tree of shapes."""
    import jax

    return sum(math.prod(leaf.shape) * 4 for leaf in jax.tree.leaves(shapes))


def available_bytes() -> int | None:
    """Return what the device that will hold the replay can still give, or None where nobody says."""
    import jax

    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else int(limit - stats.get("bytes_in_use", 0))
    answers = [size for size in (_free_of_machine(), _free_of_container()) if size is not None]
    return min(answers, default=None)


def _free_of_machine() -> int | None:
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    return int(fields["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in fields else None


def _free_of_container() -> int | None:
    """Return what a control group still allows: a container's limit is below that of its machine."""
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if not (limit.exists() and used.exists()) or limit.read_text().strip() == "max":
        return None
    return int(limit.read_text()) - int(used.read_text())


def require_room(shapes: Any, available: int | None, path: Path) -> None:
    """Refuse to open a run whose state cannot be held, before it is allocated."""
    needed = bytes_of(shapes)
    if available is not None and needed > SHARE_FOR_REPLAY * available:
        raise ConfigurationError(
            f"{path} describes a learner that needs {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} GiB are "
            f"free. Restore its config.json, or open it on a larger machine."
        )


def require_memory(shapes: Any, available: int | None, on_cpu: bool) -> None:
    """Refuse a state that cannot be held, before it is allocated.

    Args:
        shapes: the training state as shapes, of all seeds.
        available: bytes that are free; None asks for nothing.
        on_cpu: whether checkpoints are copied in the same memory.
    """
    needed = bytes_of(shapes) * (COPIES_ON_CPU if on_cpu else 1)
    if available is None or needed <= SHARE_FOR_REPLAY * available:
        return
    fitting = SHARE_FOR_REPLAY * available / needed
    capacity = shapes.replay.rows.shape[2]
    raise ConfigurationError(
        f"replay and networks of {shapes.replay.rows.shape[0]} seeds need {needed / 2**30:.1f} GiB"
        f"{' with the copy that a checkpoint makes' if on_cpu else ''}, and "
        f"{SHARE_FOR_REPLAY * available / 2**30:.1f} GiB can be used. "
        f"Lower capacity from {capacity:,} to {int(capacity * fitting):,}, or train fewer seeds at once."
    )
