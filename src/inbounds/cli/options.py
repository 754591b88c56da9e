"""How `inbounds train` reads its arguments: the learner and its preset, then every field of both, and the device."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from inbounds.errors import ConfigurationError, InvalidInputError, UnknownNameError
from inbounds.limits import misfit
from inbounds.tasks.named_tasks import METAVAR, is_import_path
from inbounds.training.config import TrainingConfig
from inbounds.training.record import CONFIG, RunFolder, as_tuples


@dataclasses.dataclass(frozen=True)
class Selection:
    """What decides which other options exist."""

    learner: Annotated[str, tyro.conf.arg(metavar="NAME")] = "aram"
    """Which learner; `inbounds list learners` shows them. Its own settings are the last group below."""
    preset: Annotated[str, tyro.conf.arg(metavar="NAME")] = "default"
    """A named set of the learner's settings: `default` is what we measured to be best, `paper` the paper."""
    resume: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Go on from the newest checkpoint of this run; its settings are kept, `--steps` may grow."""
    device: Annotated[str | None, tyro.conf.arg(metavar="cpu|gpu")] = None
    """Where to compute; by default what JAX finds."""
    deterministic: bool = False
    """Ask the GPU for reproducible kernels, at some cost in speed; a CPU is reproducible anyway."""


@dataclasses.dataclass(frozen=True)
class Training(TrainingConfig):
    """The fields of `TrainingConfig`, with the short name of one of them."""

    environments: Annotated[int | None, tyro.conf.arg(aliases=("--envs",))] = None
    """Environments per seed; by default 1 on a CPU and 16 on a GPU. Updates keep pace with steps."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where the run is written; by default runs/TASK-LEARNER-TIME."""
    device: Annotated[str | None, tyro.conf.Suppress] = None
    deterministic: Annotated[bool, tyro.conf.Suppress] = False


@dataclasses.dataclass(frozen=True)
class Output:
    """What is shown and written beside the run folder's own files."""

    tensorboard: bool = True
    """Write TensorBoard events into the run folder, if tensorboardX is installed."""
    wandb: bool = False
    """Log to Weights & Biases; needs the package wandb."""
    csv: bool = True
    """Write metrics.csv and evaluations.csv into the run folder when training ends."""
    references: bool = True
    """Compare the final policy with the task's reference policies."""
    plain: bool = False
    """Print lines instead of a live display, as when the output is not a terminal."""


class Request(NamedTuple):
    """What the arguments say, complete."""

    task: str
    learner_name: str
    learner: Any
    training: TrainingConfig
    output: Output
    resume: Path | None


def parse(arguments: list[str]) -> Request:
    """Read the arguments of `inbounds train`; the JAX platform is set on the way, before JAX starts."""
    if ("--out", "") in itertools.pairwise(arguments) or "--out=" in arguments:
        raise ConfigurationError("--out '' names no folder. Name one, or leave --out out.")
    without_help = [argument for argument in arguments if argument not in ("-h", "--help")]
    chosen, _ = tyro.cli(
        Selection, args=without_help, return_unknown_args=True, add_help=False, prog="inbounds train"
    )
    recorded = None if chosen.resume is None else RunFolder(chosen.resume).config()
    own_device = None if recorded is None else recorded["training"].get("device")
    prepare_device(chosen.device or own_device, chosen.deterministic)
    from inbounds.learners.registry import make_learner

    task, name, training = None, chosen.learner, TrainingConfig()
    if chosen.resume is not None and recorded is not None:
        task, name = recorded["task"], recorded["learner"]["name"]
        learner, training = resumed(recorded, chosen.resume)
        require_recorded_learner(chosen.resume, name, learner.preset, without_help)
    else:
        learner = make_learner(name)
        if chosen.preset not in learner.presets:
            raise UnknownNameError("preset", chosen.preset, learner.presets, f"`{name}` has these.")
        if chosen.preset != "default":
            learner = make_learner(name, preset=chosen.preset)
    settings_kind = settings_type(type(learner))
    options = options_type(name, settings_kind)
    parsed = tyro.cli(
        options,
        prog="inbounds train",
        description="Train a learner on a task. Every action that is executed satisfies the constraint.",
        args=arguments,
        default=options(task, chosen, as_options(training), Output(), settings_kind(**values_of(learner))),
    )
    if parsed.task is None:
        raise ConfigurationError(
            "which task? Give one by name, such as `inbounds train reacher` (`inbounds list` shows them), or your own "
            "as `inbounds train FILE.py:TASK`."
        )
    if task is not None and parsed.task != task and not is_import_path(parsed.task):
        raise ConfigurationError(
            f"{chosen.resume} is a run of {task}, not of {parsed.task}. Leave the task out."
        )
    if chosen.resume is not None and parsed.training.out not in (None, training.out):
        raise ConfigurationError("--resume writes into the folder it resumes. Leave --out out.")
    values = {
        field.name: getattr(parsed.training, field.name) for field in dataclasses.fields(TrainingConfig)
    }
    values |= {
        "device": chosen.device or training.device,
        "deterministic": chosen.deterministic or training.deterministic,
    }
    if chosen.resume is not None:
        values["out"] = chosen.resume
    settings = {field.name: getattr(parsed.settings, field.name) for field in dataclasses.fields(learner)}
    return Request(
        parsed.task, name, type(learner)(**settings), TrainingConfig(**values), parsed.output, chosen.resume
    )


def resumed(config: Mapping[str, Any], folder: Path) -> tuple[Any, TrainingConfig]:
    """Return the learner and the training settings that a run's configuration records."""
    from inbounds.evaluation.trained import recorded_learner

    fields = {field.name for field in dataclasses.fields(TrainingConfig)}
    training = {key: as_tuples(value) for key, value in config["training"].items() if key in fields}
    found = TrainingConfig(**{**training, "out": folder})
    if wrong := misfit(found):
        raise InvalidInputError(
            f"{folder / CONFIG} has a value for '{wrong}' that this setting cannot have. Restore it, or train again."
        )
    return recorded_learner(config, folder), found


def require_recorded_learner(folder: Path, name: str, preset: str, arguments: list[str]) -> None:
    """Refuse `--learner` and `--preset` of a resumed run that are not its own."""
    recorded = Selection(learner=name, preset=preset)
    told, _ = tyro.cli(
        Selection,
        args=arguments,
        default=recorded,
        return_unknown_args=True,
        add_help=False,
        prog="inbounds train",
    )
    for option in ("learner", "preset"):
        found, wanted = getattr(told, option), getattr(recorded, option)
        if found != wanted:
            raise ConfigurationError(
                f"{folder} was trained with --{option} {wanted}, not {found}. Leave --{option} out, or train in "
                f"another folder."
            )


def as_options(training: TrainingConfig) -> Training:
    """Return the same settings in the form that the parser shows."""
    return Training(**values_of(training))


def settings_type(kind: type) -> Any:
    """Return the learner's dataclass without its `preset`, which `--preset` chooses before all others."""
    has_preset = any(field.name == "preset" for field in dataclasses.fields(kind))
    hidden: list[Any] = [("preset", Annotated[str, tyro.conf.Suppress], "default")] if has_preset else []
    return dataclasses.make_dataclass(kind.__name__, hidden, bases=(kind,), frozen=True)


def values_of(settings: Any) -> dict[str, Any]:
    """Return the fields of a dataclass with their values, nested ones as they are."""
    return {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}


def options_type(name: str, settings: Any) -> Any:
    """Return the dataclass of all options: the learner's fields stand below its name (`--aram.penalty`)."""
    task = Annotated[
        tyro.conf.Positional[str | None],
        tyro.conf.arg(
            metavar=METAVAR,
            help="Name of the task (`inbounds list` shows them), or where to import your own from.",
        ),
    ]
    return dataclasses.make_dataclass(
        "Options",
        [
            ("task", task),
            ("selection", Annotated[Selection, tyro.conf.arg(name="")]),
            ("training", Annotated[Training, tyro.conf.arg(name="")]),
            ("output", Annotated[Output, tyro.conf.arg(name="")]),
            ("settings", Annotated[settings, tyro.conf.arg(name=name)]),
        ],
        frozen=True,
    )


PLATFORMS = {"cpu": "cpu", "gpu": "cuda"}


def prepare_device(device: str | None, deterministic: bool = False) -> None:
    """Set JAX's platform and, if wanted, the flag for reproducible kernels; too late once JAX has computed."""
    if device is not None:
        if device not in PLATFORMS:
            raise UnknownNameError("device", device, PLATFORMS, "Leave --device out to use what JAX finds.")
        os.environ["JAX_PLATFORMS"] = PLATFORMS[device]
    if deterministic:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def started_device(device: str | None = None) -> Any:
    """Let JAX look for its devices and return the first one; refuse to go on if it is not what was asked for."""
    import jax

    try:
        found = jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # the latter is what jax 0.10 says without a CUDA plugin
        asked = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')}" if device is None else f"--device {device}"
        raise ConfigurationError(
            f"JAX finds no device for {asked} ({_first_line(error)}). Leave that out, or install what the device "
            f"needs: `pip install 'inbounds[cuda12]'`."
        ) from error
    if device is not None and found.platform != device:
        raise ConfigurationError(
            f"JAX computes on {found.platform} here and not on {device}. Leave --device out, or pass --device "
            f"{found.platform}."
        )
    return found


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["it has no such backend"])[0]
