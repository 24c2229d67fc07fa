"""The typed description of a training run, and how it is read from YAML."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dualwave.train.config_errors import describe, did_you_mean, nearest
from dualwave.train.data import DataConfig

# YAML gives true integers; "64" or 1.5 in the place of one is a slip.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
NotNegativeInt = Annotated[int, Field(strict=True, ge=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegativeFloat = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]

FILLED_IN = {"vocab_size": "the tokenizer", "pad_token_id": "the tokenizer"}
"""Fields of the model's configuration that the run sets, and from what."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class BatchConfig(_Section):
    """How many rows a step sees."""

    size: PositiveInt = 64
    """Rows of one batch, over all processes together."""
    token_budget: PositiveInt | None = None
    """Most text tokens of one batch, padding included, over all processes; null for no limit."""
    accumulation: PositiveInt = 1
    """Batches whose gradients are added up before the optimizer moves."""


class OptimizerConfig(_Section):
    """AdamW."""

    lr: PositiveFloat = 1e-3
    """Highest learning rate of the schedule."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    """Decay of the first and of the second moment."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""
    weight_decay: NotNegativeFloat = 0.05
    """Decoupled decay of weight matrices; norms, biases, embeddings and scalars have none."""
    clip_norm: PositiveFloat = 1.0
    """Longest gradient (global norm); longer ones are scaled down to it."""


class ScheduleConfig(_Section):
    """Linear warm-up, then a cosine."""

    steps: PositiveInt = 800
    """Optimizer steps of the run."""
    warmup_steps: NotNegativeInt = 40
    """Steps of the linear warm-up; within `steps`."""
    final_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Learning rate of the last step over the highest one."""
    contrastive_only_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the steps, from the first on, that train the towers alone, by their contrast."""

    @property
    def contrastive_only_steps(self) -> int:
        """First steps of the run that train the towers alone."""
        return round(self.contrastive_only_share * self.steps)

    @field_validator("warmup_steps")
    @classmethod
    def _within_the_run(cls, value: int, info: Any) -> int:
        steps = info.data.get("steps")
        if steps is not None and value > steps:
            raise ValueError(f"{value} is more than the {steps} steps of the run.")
        return value


class LossConfig(_Section):
    """Weights of the loss' parts."""

    saliency: NotNegativeFloat = 1.0
    """Weight of the map's loss (location, Dice and binary cross entropy)."""
    contrastive: NotNegativeFloat = 0.1
    """Weight of the image-text loss, between each caption and the region that it names."""


class TrainConfig(_Section):
    """Everything that a training run needs to know."""

    output_dir: Annotated[str, Field(min_length=1)]
    """Folder of the run: metrics, checkpoints and the final model are written here."""
    data: DataConfig
    """Where the rows come from."""
    seed: Annotated[NotNegativeInt, Field(lt=2**63)] = 0
    """Seed of the weights, of the order of rows, and of everything else that is random."""
    model: dict[str, Any] = {}
    """Fields of the model's configuration; those left out have its defaults."""
    batch: BatchConfig = BatchConfig()
    """Rows of a step."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW's settings."""
    schedule: ScheduleConfig = ScheduleConfig()
    """Steps and learning rate."""
    loss: LossConfig = LossConfig()
    """Weights of the loss' parts."""
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    """Arithmetic of the forward and backward pass; weights and optimizer are float32 always."""
    gradient_checkpointing: Annotated[bool, Field(strict=True)] = False
    """Compute activations anew in the backward pass instead of keeping them: less memory."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto takes a GPU when there is one."""
    log_every: PositiveInt = 10
    """Steps between two lines of metrics.jsonl (the first and the last step have one, too)."""
    checkpoint_every: PositiveInt = 200
    """Steps between two checkpoints (the last step has one, too)."""
    keep_checkpoints: PositiveInt = 2
    """How many of the newest checkpoints stay on disk."""
    loader_workers: NotNegativeInt = 1
    """Threads that read and prepare the next batch meanwhile; 0 reads it between two steps."""

    @model_validator(mode="after")
    def _learns_something(self) -> Self:
        if self.loss.contrastive == 0 and (
            self.loss.saliency == 0 or self.schedule.contrastive_only_share > 0
        ):
            raise ValueError(
                "loss.contrastive is 0, so nothing would be learned in the steps that train by it "
                "alone: raise it, or set schedule.contrastive_only_share to 0 and loss.saliency "
                "above 0."
            )
        return self

    @field_validator("model")
    @classmethod
    def _known_model_fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_model_fields(value)
        return value


def check_model_fields(fields: dict[str, Any]) -> None:
    """Check the names and values that a config gives for the model.

    Raises:
        ValueError: a name that the model's configuration doesn't have (the nearest right one is
            named), one that the run sets itself, or a value that it refuses.
    """
    # Imported late: transformers takes seconds, and reading a config's schema doesn't need it.
    from dualwave.models import DualStreamConfig

    allowed = [
        name
        for name in vars(DualStreamConfig)["__annotations__"]
        if name not in FILLED_IN and name != "model_type"
    ]
    for name in fields:
        if name in FILLED_IN:
            raise ValueError(
                f"{name!r} is not for the config to set: {FILLED_IN[name]} decides it."
            )
        if name not in allowed:
            raise ValueError(
                f"the model has no field {name!r}; its fields are "
                f"{', '.join(allowed)}{did_you_mean(nearest(name, allowed))}"
            )
    try:
        DualStreamConfig(**fields)
    except (TypeError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from error


def load_config(name_or_path: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a run's config.

    Args:
        name_or_path: a YAML file, or the bare name of a shipped config (`demo` or `demo.yaml`).
        overrides: `key.sub=value`, the value in YAML; they win over the file.

    Raises:
        FileNotFoundError: there is no such file and no shipped config of that name.
        ValueError: broken YAML (file and line are named), an override without `=`, an unknown key
            or a wrong value (what is allowed and the nearest right one are named).
    """
    text, source = _read(name_or_path)
    values = _parse_mapping(text, source)
    for override in overrides:
        _apply(override, values)
    if overrides:
        source = f"{source} with overrides"
    return config_from_mapping(values, source)


def config_from_mapping(values: dict[str, Any], source: str = "config") -> TrainConfig:
    """Check plain values, as YAML gives them.

    Args:
        values: sections and fields of `TrainConfig`.
        source: where they come from; the error says it.

    Raises:
        ValueError: an unknown key or a wrong value, in one sentence.
    """
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(describe(error, TrainConfig, source)) from None


def shipped_configs() -> list[str]:
    """File names of the configs that come with dualwave."""
    folder = importlib.resources.files("dualwave.train.configs")
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _read(name_or_path: str) -> tuple[str, str]:
    path = Path(name_or_path)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8"), name_or_path
        except UnicodeDecodeError as error:
            raise ValueError(f"{name_or_path} is not a text file in UTF-8.") from error
    shipped = shipped_configs()
    name = name_or_path if name_or_path.endswith(".yaml") else f"{name_or_path}.yaml"
    if name in shipped:
        folder = importlib.resources.files("dualwave.train.configs")
        return (folder / name).read_text(encoding="utf-8"), name
    raise FileNotFoundError(
        f"no config {name_or_path!r}: there is no such file, and the shipped ones are "
        f"{', '.join(shipped)}{did_you_mean(nearest(name, shipped))}"
    )


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML's plain types, and a key that is written twice is an error instead of the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain word", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _parse_mapping(text: str, source: str) -> dict[str, Any]:
    try:
        values = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(f"{source}{_place(error)} is not valid YAML: {_problem(error)}.") from None
    if values is None:
        values = {}
    if not isinstance(values, dict):
        raise ValueError(
            f"{source} holds {type(values).__name__}, not keys with values such as 'seed: 0'."
        )
    return values


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}," if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    return str(getattr(error, "problem", None) or error).splitlines()[0]


def _apply(override: str, values: dict[str, Any]) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ValueError(f"{override!r} is not an override: write key.sub=value.")
    try:
        value = yaml.load(text, Loader=_UniqueKeyLoader)
    except yaml.YAMLError as error:
        raise ValueError(
            f"the value of {override!r} is not valid YAML: {_problem(error)}."
        ) from None
    section = values
    for depth, part in enumerate(parts[:-1], start=1):
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            raise ValueError(
                f"{override!r} can't be set: {'.'.join(parts[:depth])} is {section!r} and has no "
                "keys."
            )
    section[parts[-1]] = value
