from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualwave.predict import choose_names


def save_noise(path: Path, width: int, height: int, seed: int = 0) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_writes_map_and_overlay_in_the_image_size(command, checkpoint, tmp_path):
    import dualwave

    image = save_noise(tmp_path / "photo.png", width=90, height=50)
    result = command(
        "predict", checkpoint, image, "--text", "the red three", "--output", tmp_path / "new/maps"
    )
    assert result.code == 0, result.err
    map_file = tmp_path / "new/maps/photo.map.png"
    overlay_file = tmp_path / "new/maps/photo.overlay.png"
    assert f"wrote {map_file} and {overlay_file}" in result.out
    written = Image.open(map_file)
    assert (written.size, written.mode) == ((90, 50), "L")
    expected = dualwave.load(checkpoint).saliency(Image.open(image), "the red three")
    assert np.abs(np.asarray(written) / 255 - expected).max() <= 0.5 / 255 + 1e-6
    overlaid = Image.open(overlay_file)
    assert (overlaid.size, overlaid.mode) == ((90, 50), "RGB")
    assert sorted(p.name for p in map_file.parent.iterdir()) == [map_file.name, overlay_file.name]


def test_images_of_one_name_do_not_overwrite_each_other(command, checkpoint, tmp_path):
    images = [
        save_noise(tmp_path / "a" / "photo.png", 40, 30, seed=1),
        save_noise(tmp_path / "b" / "photo.png", 50, 30, seed=2),
        save_noise(tmp_path / "b" / "photo.bmp", 60, 30, seed=3),
    ]
    output = tmp_path / "maps"
    result = command("predict", checkpoint, *images, "--text", "every one", "--output", output)
    assert result.code == 0, result.err
    widths = [
        Image.open(output / f"{stem}.{kind}.png").width
        for stem in ("photo", "photo-2", "photo-3")
        for kind in ("map", "overlay")
    ]
    assert widths == [40, 40, 50, 50, 60, 60]


def test_an_input_is_never_overwritten():
    images = [Path("photo.png"), Path("photo.map.png")]
    names = [(pair.map_file.name, pair.overlay_file.name) for pair in choose_names(images, Path())]
    assert names == [
        ("photo-2.map.png", "photo-2.overlay.png"),
        ("photo.map.map.png", "photo.map.overlay.png"),
    ]


def test_words_the_model_has_not_learned_are_named(command, checkpoint, tmp_path):
    image = save_noise(tmp_path / "photo.png", 32, 32)
    result = command(
        "predict", checkpoint, image, "--text", "the Red zebra", "--output", tmp_path / "maps"
    )
    assert result.code == 0
    assert "zebra" in result.err
    assert "Red" not in result.err


@pytest.mark.parametrize(
    ("text", "parts"), [("", ["--text is empty"]), ("  ", ["--text is empty"])]
)
def test_empty_text(command, checkpoint, tmp_path, text, parts):
    image = save_noise(tmp_path / "photo.png", 32, 32)
    command("predict", checkpoint, image, "--text", text).assert_one_sentence(*parts)


def test_missing_image_is_named_and_nothing_is_written(command, checkpoint, tmp_path):
    image = save_noise(tmp_path / "photo.png", 32, 32)
    output = tmp_path / "maps"
    result = command(
        "predict", checkpoint, image, tmp_path / "gone.png", "--text", "x", "--output", output
    )
    result.assert_one_sentence("gone.png")
    assert not output.exists()


def test_a_file_that_is_no_image_is_named(command, checkpoint, tmp_path):
    text_file = tmp_path / "notes.txt"
    text_file.write_text("not an image")
    result = command("predict", checkpoint, text_file, "--text", "the red three")
    result.assert_one_sentence("notes.txt", "image")


def test_a_folder_is_no_image(command, checkpoint, tmp_path):
    result = command("predict", checkpoint, tmp_path, "--text", "the red three")
    result.assert_one_sentence(str(tmp_path))


def test_output_that_is_a_file(command, checkpoint, tmp_path):
    image = save_noise(tmp_path / "photo.png", 32, 32)
    result = command("predict", checkpoint, image, "--text", "x", "--output", image)
    result.assert_one_sentence("--output", "is a file")


def test_missing_checkpoint(command, tmp_path):
    image = save_noise(tmp_path / "photo.png", 32, 32)
    result = command("predict", tmp_path / "nothing", image, "--text", "the red three")
    result.assert_one_sentence("nothing")


def test_a_checkpoint_without_weights(command, checkpoint_copy, tmp_path):
    (checkpoint_copy / "model.safetensors").unlink()
    image = save_noise(tmp_path / "photo.png", 32, 32)
    result = command("predict", checkpoint_copy, image, "--text", "the red three")
    result.assert_one_sentence(str(checkpoint_copy), "safetensors")
