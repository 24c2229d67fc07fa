"""Reading a saved model back, with everything accounted for."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from dualwave.models.configuration import DualStreamConfig
from dualwave.models.modeling import DualStreamModel
from dualwave.models.processing import DualStreamProcessor
from dualwave.models.quiet import quiet_transformers


def load(path: str | Path, *, device: str | torch.device | None = None) -> DualStreamModel:
    """Load a model and its processor from a folder that `save_pretrained` or training wrote.

    Args:
        path: the folder, with config.json, model.safetensors and the processor's files.
        device: where to put the model; the CPU if None.

    Returns:
        The model in evaluation mode, its processor as ``model.processor``.

    Raises:
        FileNotFoundError: no such folder, or a file is missing from it.
        ValueError: a broken file, another model type, or weights that do not match the
            configuration (missing, unexpected or of another shape).
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no checkpoint folder {str(folder)!r}.")
    config = _read_config(folder)
    if not any(folder.glob("*.safetensors")):
        raise FileNotFoundError(f"{str(folder)!r} holds no .safetensors file with weights.")
    try:
        with quiet_transformers():
            model, report = DualStreamModel.from_pretrained(
                folder,
                config=config,
                output_loading_info=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # reported below, with the names
            )
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"the weights in {str(folder)!r} cannot be loaded: {reason}") from None
    _refuse_gaps(folder, report)
    try:
        model.processor = DualStreamProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise FileNotFoundError(f"{str(folder)!r} has no usable processor: {reason}") from None
    return model.eval().to(device or "cpu")


def _refuse_gaps(folder: Path, report: dict[str, Any]) -> None:
    """Raise if a weight was missing, left over, or of another shape."""
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        # A mismatch is (name, shape in the file, shape in the model).
        names = sorted(key if isinstance(key, str) else key[0] for key in report.get(kind) or ())
        if names:
            raise ValueError(
                f"the weights in {str(folder)!r} do not match its config.json: "
                f"{kind.replace('_', ' ')}: {', '.join(names)}."
            )


def _read_config(folder: Path) -> DualStreamConfig:
    file = folder / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"{str(folder)!r} is not a model folder: it has no config.json.")
    try:
        model_type = json.loads(file.read_text(encoding="utf-8")).get("model_type")
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise ValueError(f"{str(file)!r} is not a JSON object: {error}") from None
    if model_type != DualStreamConfig.model_type:
        raise ValueError(
            f"{str(file)!r} describes a model of type {model_type!r}; "
            f"this version loads {DualStreamConfig.model_type!r}."
        )
    return DualStreamConfig.from_pretrained(folder, local_files_only=True)
