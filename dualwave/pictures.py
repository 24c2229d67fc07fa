"""Pictures of saliency maps: the map as grey, the overlay on the image, and a sheet of scenes."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Where the overlay is at full strength, from a map value of 0 to 1: dark purple, red, light yellow.
_HEAT = np.array(
    [(20, 11, 53), (88, 16, 110), (163, 42, 96), (221, 81, 58), (249, 142, 9), (252, 246, 160)],
    dtype=np.float32,
)
_DIMMED = 0.35  # share of the image's brightness kept where the map is 0


def map_to_grey(saliency: np.ndarray) -> Image.Image:
    """A map (H, W) of floats in [0, 1] as an 8-bit grey image, white where it is 1."""
    return Image.fromarray(np.rint(np.clip(saliency, 0, 1) * 255).astype(np.uint8))


def heat_colours(saliency: np.ndarray) -> np.ndarray:
    """A map (H, W) of floats in [0, 1] as colours (H, W, 3), float32 in [0, 255]."""
    position = np.clip(saliency, 0, 1) * (len(_HEAT) - 1)
    stops = np.arange(len(_HEAT))
    channels = [np.interp(position, stops, _HEAT[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).astype(np.float32)


def overlay(image: Image.Image, saliency: np.ndarray) -> Image.Image:
    """The image dimmed to grey where the map is 0, with a heat colour laid on where it is not.

    Args:
        image: any mode, W x H.
        saliency: (H, W) floats in [0, 1].

    Returns:
        An RGB image of the same size.

    Raises:
        ValueError: if the map is not of the image's size.
    """
    if saliency.shape != (image.height, image.width):
        raise ValueError(
            f"the map has shape {saliency.shape}, the image needs {(image.height, image.width)}"
        )
    colour = np.asarray(image.convert("RGB"), dtype=np.float32)
    grey = np.asarray(image.convert("L"), dtype=np.float32)[..., None]
    strength = np.clip(saliency, 0, 1).astype(np.float32)[..., None]
    background = _DIMMED * grey + (colour - _DIMMED * grey) * strength
    mixed = background + 0.6 * strength * (heat_colours(saliency) - background)
    return Image.fromarray(np.rint(mixed).astype(np.uint8))


def save_picture(image: Image.Image, path: Path) -> None:
    """Write a PNG to a temporary name in the same folder, then rename it."""
    partial = path.with_name(f".{path.name}.partial")
    image.save(partial, format="PNG")
    os.replace(partial, path)


@dataclass(frozen=True)
class ScenePicture:
    """One scene of a sheet: its image, caption, truth (H, W) bool and prediction (H, W) float."""

    image: Image.Image
    caption: str
    level: str | None
    mask: np.ndarray
    prediction: np.ndarray


_TILE = 160
_GAP = 8
_CAPTION_HEIGHT = 26
_CARD_WIDTH = 3 * _TILE + 2 * _GAP
_CARD_HEIGHT = _CAPTION_HEIGHT + _TILE
_MARGIN = 24
_HEADER_HEIGHT = 24


def draw_scene_sheet(scenes: Sequence[ScenePicture]) -> Image.Image:
    """A sheet of scenes in two columns; each shows picture, truth and overlaid prediction.

    Args:
        scenes: one or more scenes.

    Raises:
        ValueError: if there is no scene.
    """
    if not scenes:
        raise ValueError("a sheet needs at least one scene")
    columns = min(2, len(scenes))
    rows = -(-len(scenes) // columns)
    width = columns * _CARD_WIDTH + (columns + 1) * _MARGIN
    height = _HEADER_HEIGHT + rows * (_CARD_HEIGHT + _MARGIN) + _MARGIN
    sheet = Image.new("RGB", (width, height), "white")
    for column in range(columns):
        left = _MARGIN + column * (_CARD_WIDTH + _MARGIN)
        for tile, title in enumerate(("scene", "truth", "prediction")):
            _write(sheet, (left + tile * (_TILE + _GAP), 10), title, "#6b7280", 13)
    for number, scene in enumerate(scenes):
        row, column = divmod(number, columns)
        left = _MARGIN + column * (_CARD_WIDTH + _MARGIN)
        top = _HEADER_HEIGHT + 12 + row * (_CARD_HEIGHT + _MARGIN)
        _draw_card(sheet, left, top, scene)
    return sheet


def _draw_card(sheet: Image.Image, left: int, top: int, scene: ScenePicture) -> None:
    title_font = ImageFont.load_default(16)
    _write(sheet, (left, top), scene.caption, "#111827", 16)
    if scene.level is not None:
        end = left + ImageDraw.Draw(sheet).textlength(scene.caption, font=title_font)
        _write(sheet, (int(end) + 10, top + 2), scene.level, "#9ca3af", 13)
    tiles = (
        scene.image.convert("RGB"),
        map_to_grey(scene.mask.astype(np.float32)),
        overlay(scene.image, scene.prediction),
    )
    for number, tile in enumerate(tiles):
        enlarged = tile.convert("RGB").resize((_TILE, _TILE), Image.Resampling.BICUBIC)
        sheet.paste(enlarged, (left + number * (_TILE + _GAP), top + _CAPTION_HEIGHT))


def _write(sheet: Image.Image, place: tuple[int, int], text: str, colour: str, size: int) -> None:
    ImageDraw.Draw(sheet).text(place, text, fill=colour, font=ImageFont.load_default(size))
