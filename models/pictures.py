"""Image files to upright RGB pictures, the same way for training and for use."""

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError


class UnreadablePictureError(ValueError):
    """The file is not an image, or is broken; the message is the reason alone."""


def read_picture(source: Path | io.BytesIO) -> Image.Image:
    """Decode a whole image file and turn it upright as its EXIF data says.

    Raises:
        FileNotFoundError: there is no such file.
        UnreadablePictureError: it cannot be decoded.
    """
    try:
        with Image.open(source) as picture:
            # Decodes the whole picture, so that a cut-off file is found here.
            picture.load()
            return ImageOps.exif_transpose(picture)
    except FileNotFoundError:
        raise
    except UnidentifiedImageError:
        raise UnreadablePictureError("not an image file") from None
    # Pillow raises SyntaxError and ValueError, too, for files that are broken inside.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadablePictureError(str(error)) from error


def to_rgb(picture: Image.Image) -> Image.Image:
    """Eight bits a channel and three channels; 16-bit grey keeps its upper eight bits."""
    if picture.mode.startswith("I"):  # a conversion would clip all but the darkest values
        picture = Image.fromarray((np.asarray(picture) // 256).clip(0, 255).astype(np.uint8))
    return picture.convert("RGB")
