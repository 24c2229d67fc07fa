"""Pictures of saliency maps: grey, heat, overlay, difference, and a contact sheet.

Only NumPy and Pillow are needed. Maps are drawn as they are: 0 is always the dark end and 1 the
bright end, no map is stretched to its own range, so that pictures can be compared with each other.
"""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from dualwave.eval.output import write_whole

# Thirteen even samples of matplotlib's "inferno" (CC0).
HEAT_COLOURS = np.array(
    [
        (0, 0, 4),
        (17, 10, 48),
        (50, 10, 94),
        (87, 16, 110),
        (120, 28, 109),
        (154, 40, 101),
        (188, 55, 84),
        (216, 76, 62),
        (237, 105, 37),
        (249, 142, 9),
        (251, 182, 26),
        (244, 223, 83),
        (252, 255, 164),
    ],
    dtype=np.float64,
)
AGREEMENT_COLOUR = (24, 26, 32)
FALSE_ALARM_COLOUR = (255, 140, 50)
MISS_COLOUR = (70, 170, 255)
_OVERLAY_OPACITY = 0.65
_OVERLAY_BRIGHTNESS = 0.6
_OVERLAY_COLOUR = 0.35

_SHEET_BACKGROUND = (255, 255, 255)
_SHEET_INK = (31, 35, 40)
_SHEET_FAINT_INK = (101, 109, 118)


@dataclass(frozen=True)
class ScenePicture:
    """One scene as reports show it.

    Attributes:
        id: the sample's id.
        image: the picture.
        caption: what was asked for.
        mask: (H, W) bool, the truth, at the picture's size.
        prediction: (H, W) float in [0, 1] or uint8, at the picture's size.
        average_precision: the scene's pixel AP, NaN where the mask has no object.
        group: the scene's level, or None.
    """

    id: str
    image: Image.Image
    caption: str
    mask: NDArray[np.bool_]
    prediction: NDArray[Any]
    average_precision: float
    group: str | None = None


def map_to_image(saliency: ArrayLike) -> Image.Image:
    """Return a map as an 8-bit grey picture (mode "L"), rounded to the nearest level.

    Args:
        saliency: (H, W) float in [0, 1], bool or uint8.

    Raises:
        ValueError: another shape or type, NaN, or values outside [0, 1].
    """
    return Image.fromarray(np.rint(_unit_map(saliency) * 255).astype(np.uint8))


def heat_image(saliency: ArrayLike) -> Image.Image:
    """Return a map as an RGB picture, black over red to light yellow (see ``map_to_image``)."""
    return Image.fromarray(np.rint(_heat(_unit_map(saliency))).astype(np.uint8))


def overlay(image: Image.Image, saliency: ArrayLike) -> Image.Image:
    """Lay a map over its picture, which is dimmed and paled so that the heat stands out.

    Args:
        image: the picture, any mode.
        saliency: (H, W) float in [0, 1] or uint8, at the picture's size.

    Returns:
        RGB picture of the same size.

    Raises:
        ValueError: the map's size is not the picture's, or a bad map (see ``map_to_image``).
    """
    values = _unit_map(saliency)
    if values.shape != (image.height, image.width):
        raise ValueError(
            f"the map is {values.shape[1]} x {values.shape[0]} pixels and the picture "
            f"{image.width} x {image.height}: resize the map to the picture's size first"
        )
    colour = image.convert("RGB")
    grey = np.asarray(colour.convert("L"), dtype=np.float64)[..., None]
    pale = _OVERLAY_COLOUR * np.asarray(colour) + (1 - _OVERLAY_COLOUR) * grey
    opacity = _OVERLAY_OPACITY * values[..., None]
    brightness = _OVERLAY_BRIGHTNESS + (1 - _OVERLAY_BRIGHTNESS) * values[..., None]
    mixed = (1 - opacity) * brightness * pale + opacity * _heat(values)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def difference_image(saliency: ArrayLike, mask: NDArray[np.bool_]) -> Image.Image:
    """Return where map and mask disagree: orange for false alarm, blue for what was missed.

    The colour's strength is ``|saliency - mask|``; dark where they agree.

    Raises:
        ValueError: shapes differ, or a bad map (see ``map_to_image``).
    """
    values = _unit_map(saliency)
    if values.shape != mask.shape:
        raise ValueError(f"the map has the shape {values.shape} and the mask {mask.shape}")
    error = np.abs(values - mask)[..., None]
    colour = np.where(mask[..., None], MISS_COLOUR, FALSE_ALARM_COLOUR)
    mixed = (1 - error) * np.array(AGREEMENT_COLOUR) + error * colour
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def contact_sheet(
    scenes: Sequence[ScenePicture], columns: int = 2, picture_size: int = 128
) -> Image.Image:
    """Put scenes on one white sheet: picture, truth and prediction under the caption and its AP.

    Args:
        scenes: in reading order.
        columns: scenes side by side.
        picture_size: height and width given to each of a scene's three pictures; a picture keeps
            its proportions, and small ones are enlarged by whole pixels.

    Raises:
        ValueError: no scene, fewer than one column, or a bad map.
    """
    if not scenes or columns < 1:
        raise ValueError("a contact sheet needs at least one scene and one column")
    margin, gap, caption_height = 24, 8, 30
    cell_width = 3 * picture_size + 2 * gap
    cell_height = caption_height + picture_size + margin
    rows = -(-len(scenes) // columns)
    heading = 26
    sheet = Image.new(
        "RGB",
        (
            margin + columns * (cell_width + margin),
            margin + heading + rows * cell_height,
        ),
        _SHEET_BACKGROUND,
    )
    draw = ImageDraw.Draw(sheet)
    caption_font, small_font = _font(16), _font(13)
    for column in range(min(columns, len(scenes))):
        left = margin + column * (cell_width + margin)
        for place, name in enumerate(("picture", "truth", "prediction")):
            x = left + place * (picture_size + gap)
            draw.text((x, margin - 6), name, fill=_SHEET_FAINT_INK, font=small_font)
    for index, scene in enumerate(scenes):
        left = margin + (index % columns) * (cell_width + margin)
        top = margin + heading + (index // columns) * cell_height
        score = (
            "no object"
            if np.isnan(scene.average_precision)
            else (f"AP {scene.average_precision:.2f}")
        )
        score_width = draw.textlength(score, font=small_font)
        caption = _shortened(
            f"\u201c{scene.caption}\u201d", caption_font, cell_width - score_width - gap, draw
        )
        draw.text((left, top), caption, fill=_SHEET_INK, font=caption_font)
        draw.text(
            (left + cell_width - score_width, top + 3),
            score,
            fill=_SHEET_FAINT_INK,
            font=small_font,
        )
        pictures = (scene.image, map_to_image(scene.mask), heat_image(scene.prediction))
        for place, picture in enumerate(pictures):
            fitted = _fitted(picture, picture_size)
            x = left + place * (picture_size + gap) + (picture_size - fitted.width) // 2
            y = top + caption_height + (picture_size - fitted.height) // 2
            sheet.paste(fitted, (x, y))
    return sheet


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write a picture as PNG under a temporary name, then rename it; folders are made."""
    stream = io.BytesIO()
    picture.save(stream, format="PNG")
    return write_whole(path, stream.getvalue())


def _unit_map(saliency: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(saliency)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"a map has the shape (height, width), this one has {values.shape}")
    if values.dtype == np.uint8:
        return values / 255.0
    if values.dtype.kind not in "fb":
        raise ValueError(f"a map is float in [0, 1] or uint8, this one is {values.dtype}")
    unit = values.astype(np.float64)
    if not (unit.min() >= 0 and unit.max() <= 1):  # also true of NaN
        raise ValueError(
            f"the map's values lie in [{unit.min():.4g}, {unit.max():.4g}], not [0, 1]"
        )
    return unit


def _heat(values: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.linspace(0, 1, len(HEAT_COLOURS))
    return np.stack([np.interp(values, places, channel) for channel in HEAT_COLOURS.T], axis=-1)


def _fitted(picture: Image.Image, size: int) -> Image.Image:
    """Scale to fit a square: whole pixels for enlarging, smooth for shrinking."""
    longest = max(picture.size)
    if longest <= size:
        factor = size // longest
        enlarged = (picture.width * factor, picture.height * factor)
        return picture.convert("RGB").resize(enlarged, Image.Resampling.NEAREST)
    smaller = (
        max(1, round(picture.width * size / longest)),
        max(1, round(picture.height * size / longest)),
    )
    return picture.convert("RGB").resize(smaller, Image.Resampling.LANCZOS)


def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)


def _shortened(
    text: str,
    font: ImageFont.ImageFont | ImageFont.FreeTypeFont,
    width: float,
    draw: ImageDraw.ImageDraw,
) -> str:
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(text + "...", font=font) > width:
        text = text[:-1]
    return text.rstrip() + "..."
