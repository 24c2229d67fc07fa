"""Pictures of maps: sizes, colours at both ends, and refusals."""

import math

import numpy as np
import pytest
from PIL import Image

from dualwave.eval.pictures import (
    AGREEMENT_COLOUR,
    FALSE_ALARM_COLOUR,
    MISS_COLOUR,
    ScenePicture,
    contact_sheet,
    difference_image,
    heat_image,
    map_to_image,
    overlay,
    save_picture,
)

RAMP = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)


def test_map_to_image_rounds_and_does_not_stretch():
    grey = map_to_image(RAMP / 2)
    assert (grey.mode, grey.size) == ("L", (4, 3))
    np.testing.assert_array_equal(np.asarray(grey), np.round(RAMP.astype(np.float64) / 2 * 255))
    levels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(map_to_image(levels)), levels)


def test_heat_grows_brighter_with_the_map():
    brightness = np.asarray(heat_image(RAMP)).astype(int).sum(axis=-1).ravel()
    assert np.all(np.diff(brightness) > 0)


def test_overlay_shows_heat_where_the_map_is_high():
    image = Image.new("RGB", (4, 3), (40, 90, 200))
    saliency = np.zeros((3, 4))
    saliency[1, 2] = 1
    pixels = np.asarray(overlay(image, saliency)).astype(int)
    assert pixels.shape == (3, 4, 3)
    hot, cold = pixels[1, 2], pixels[0, 0]
    assert hot[0] > cold[0] + 100
    assert cold[2] > cold[0]  # the picture's own hue is still seen
    assert (np.delete(pixels.reshape(-1, 3), 6, axis=0) == cold).all()


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_overlay_takes_pictures_of_any_mode(mode):
    assert overlay(Image.new(mode, (4, 3)), RAMP).mode == "RGB"


def test_difference_colours_tell_miss_from_false_alarm():
    mask = np.array([[True, True, False, False]])
    drawn = np.asarray(difference_image(np.array([[1.0, 0.0, 1.0, 0.0]]), mask))
    assert [tuple(pixel) for pixel in drawn[0]] == [
        AGREEMENT_COLOUR,
        MISS_COLOUR,
        FALSE_ALARM_COLOUR,
        AGREEMENT_COLOUR,
    ]


@pytest.mark.parametrize(
    "bad", [np.full((3, 4), np.nan), RAMP * 2, RAMP[0], np.zeros((3, 4), dtype=np.int32)]
)
@pytest.mark.parametrize("draw", [map_to_image, heat_image])
def test_bad_maps_are_refused(draw, bad):
    with pytest.raises(ValueError, match="map"):
        draw(bad)


def test_other_sizes_are_refused():
    with pytest.raises(ValueError, match="4 x 3 pixels and the picture 8 x 3"):
        overlay(Image.new("RGB", (8, 3)), RAMP)
    with pytest.raises(ValueError, match=r"\(3, 4\) and the mask \(4, 3\)"):
        difference_image(RAMP, np.zeros((4, 3), dtype=bool))


def _scene(height, width, caption="the red three", precision=0.5):
    mask = np.zeros((height, width), dtype=bool)
    mask[: height // 2] = True
    return ScenePicture(
        "id", Image.new("RGB", (width, height), "red"), caption, mask, mask * 1.0, precision
    )


def test_contact_sheet_holds_every_scene():
    scenes = [_scene(64, 64), _scene(300, 200, "words " * 60), _scene(10, 30, precision=math.nan)]
    sheet = contact_sheet(scenes, columns=2, picture_size=128)
    one = contact_sheet(scenes[:1], columns=2, picture_size=128)
    assert sheet.width == one.width
    assert sheet.height > one.height
    reds = (np.asarray(sheet) == (255, 0, 0)).all(axis=-1).sum()
    # enlarged by whole pixels (2x and 4x), shrunk to fit 128 (85 x 128)
    assert reds == pytest.approx(128 * 128 + 85 * 128 + 120 * 40, rel=0.01)
    with pytest.raises(ValueError, match="at least one scene"):
        contact_sheet([])


def test_save_picture_replaces_the_file_whole(tmp_path):
    target = tmp_path / "new" / "map.png"
    assert save_picture(map_to_image(RAMP), target) == target
    save_picture(map_to_image(RAMP * 0), target)
    assert np.asarray(Image.open(target)).max() == 0
    assert [path.name for path in target.parent.iterdir()] == ["map.png"]
