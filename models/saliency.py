"""From what a user holds (paths, arrays, tensors, PIL images) to saliency maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from dualwave.models.pictures import UnreadablePictureError, read_picture, to_rgb

if TYPE_CHECKING:
    from dualwave.models.modeling import DualStreamModel

ImageLike = Image.Image | np.ndarray | Tensor | str | Path

_BATCH = 64


def saliency_maps(
    model: "DualStreamModel",
    images: Sequence[ImageLike],
    texts: Sequence[str],
) -> list[np.ndarray]:
    """One map for each pair; see `DualStreamModel.saliency`."""
    processor = model.processor
    if processor is None:
        raise ValueError(
            "this model has no processor: load it with dualwave.load, or set model.processor."
        )
    maps: list[np.ndarray] = []
    was_training = model.training
    model.eval()
    try:
        for start in range(0, len(images), _BATCH):
            pictures = [to_pil(image) for image in images[start : start + _BATCH]]
            inputs = processor(images=pictures, text=list(texts[start : start + _BATCH]))
            with torch.inference_mode():
                output = model(**{name: value.to(model.device) for name, value in inputs.items()})
                logits = output.saliency_logits.float()
            for picture, picture_logits in zip(pictures, logits, strict=True):
                resized = F.interpolate(
                    picture_logits[None, None],
                    size=(picture.height, picture.width),
                    mode="bilinear",
                    align_corners=False,
                )
                maps.append(resized[0, 0].sigmoid().cpu().numpy())
    finally:
        model.train(was_training)
    return maps


def to_pil(image: ImageLike) -> Image.Image:
    """An RGB picture from what a user holds.

    Args:
        image: a PIL image; the path of an image file (its EXIF orientation is applied); an array
            (H, W, 3) or (H, W); or a tensor (3, H, W), (1, H, W) or (H, W). Arrays and tensors
            are uint8, or floats in [0, 1].

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an image, or another shape, dtype or range than those above.
    """
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if isinstance(image, str | Path):
        try:
            return to_rgb(read_picture(Path(image)))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no image file {str(image)!r}.") from None
        except UnreadablePictureError as error:
            raise ValueError(f"{str(image)!r} cannot be read as an image: {error}.") from None
    if isinstance(image, Tensor):
        held = image.detach().cpu()
        array = (held.float() if held.is_floating_point() else held).numpy()
        if array.ndim == 3:
            array = np.moveaxis(array, 0, -1)
    elif isinstance(image, np.ndarray):
        array = image
    else:
        raise ValueError(
            "an image is a PIL image, a path, a numpy array or a tensor, "
            f"not {type(image).__name__}."
        )
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[..., 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3)):
        raise ValueError(
            f"an image array is (H, W, 3) or (H, W) and a tensor (3, H, W) or (H, W), "
            f"not {tuple(image.shape)}."
        )
    return Image.fromarray(_to_uint8(array)).convert("RGB")


def _to_uint8(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"an image array is uint8 or floating point, not {array.dtype}.")
    if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
        raise ValueError("a floating-point image must lie in [0, 1]: scale it, or pass uint8.")
    return np.round(array * 255).astype(np.uint8)
