import io

import numpy as np
import pytest
from PIL import Image

from dualwave.models.pictures import UnreadablePictureError, read_picture, to_rgb


def test_sixteen_bits_keep_their_upper_eight():
    deep = (np.arange(54).reshape(6, 9) * 1000).astype(np.uint16)
    assert np.array_equal(np.asarray(to_rgb(Image.fromarray(deep)))[..., 1], deep // 256)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "RGB"])
def test_every_mode_becomes_rgb(mode):
    picture = to_rgb(Image.new("RGB", (5, 3), (200, 200, 200)).convert(mode))
    assert picture.mode == "RGB"
    assert picture.size == (5, 3)


def test_a_picture_is_turned_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show the picture rotated by 90 degrees clockwise
    file = io.BytesIO()
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    Image.fromarray(pixels).save(file, "png", exif=exif)
    assert np.array_equal(np.asarray(read_picture(file)), np.rot90(pixels, k=-1))


def test_broken_files_have_a_reason(tmp_path):
    with pytest.raises(UnreadablePictureError, match="not an image file"):
        read_picture(io.BytesIO(b"no picture"))
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(file, "png")
    with pytest.raises(UnreadablePictureError):
        read_picture(io.BytesIO(file.getvalue()[:2000]))
    with pytest.raises(FileNotFoundError):
        read_picture(tmp_path / "missing.png")
