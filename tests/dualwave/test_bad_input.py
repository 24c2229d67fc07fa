"""Each kind of bad input: one sentence on stderr, exit code 2, no traceback."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROWS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's own folder: images, masks and metadata.csv in each split."""
    root = tmp_path / "my_data"
    generator = np.random.default_rng(0)
    for split in ("train", "validation", "test"):
        (root / split).mkdir(parents=True)
        with (root / split / "metadata.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file_name", "mask", "caption"])
            for index in range(ROWS):
                pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / f"{index}.png")
                mask = np.zeros((32, 32), dtype=np.uint8)
                mask[index : index + 8, 4:12] = 255
                Image.fromarray(mask).save(root / split / f"{index}.mask.png")
                writer.writerow([f"{index}.png", f"{index}.mask.png", f"the square number {index}"])
    return root


@pytest.fixture
def train_words(folder: Path, tmp_path: Path) -> list[str]:
    return [
        "train",
        "--config",
        "demo.yaml",
        f"data.path={folder}",
        "data.level_column=null",
        "data.id_column=null",
        f"output_dir={tmp_path / 'run'}",
        "model.image_size=32",
        "model.vision_mixers=[spectral]",
        "model.fusion_mixers=[spectral]",
        "model.text_layers=1",
        "batch.size=2",
        "schedule.steps=3",
        "schedule.warmup_steps=1",
    ]


@pytest.fixture
def evaluate_words(folder: Path, checkpoint: Path) -> list[str]:
    columns = ["data.level_column=null", "data.id_column=null"]
    return ["eval", "model", str(checkpoint), "--data", str(folder), *columns]


def test_the_folder_itself_is_good(command, train_words, evaluate_words, tmp_path):
    trained = command(*train_words)
    assert trained.code == 0, trained.err
    assert f"model: {tmp_path / 'run' / 'model'}" in trained.out
    evaluated = command(*evaluate_words)
    assert evaluated.code == 0, evaluated.err


def break_missing_mask(folder: Path) -> None:
    for split in ("train", "test"):
        (folder / split / "1.mask.png").unlink()


def break_mask_size(folder: Path) -> None:
    for split in ("train", "test"):
        Image.new("L", (31, 32)).save(folder / split / "1.mask.png")


def break_image(folder: Path) -> None:
    for split in ("train", "test"):
        (folder / split / "1.png").write_bytes(b"not an image")


def break_caption(folder: Path) -> None:
    for split in ("train", "test"):
        file = folder / split / "metadata.csv"
        file.write_text(file.read_text().replace("the square number 1", ""))


@pytest.mark.parametrize(
    ("breaking", "about"),
    [
        (break_missing_mask, "mask"),
        (break_mask_size, "mask"),
        (break_image, "image"),
        (break_caption, "caption"),
    ],
)
def test_a_bad_row_is_named_by_train_and_eval(
    command, folder, train_words, evaluate_words, breaking, about
):
    breaking(folder)
    command(*train_words).assert_one_sentence("row 1", about)
    command(*evaluate_words).assert_one_sentence("row 1", about)


def test_bad_rows_can_be_skipped(command, folder, train_words, evaluate_words, tmp_path):
    break_missing_mask(folder)
    trained = command(*train_words, "data.on_bad_row=skip")
    assert trained.code == 0, trained.err
    scores = tmp_path / "scores.json"
    evaluated = command(*evaluate_words, "data.on_bad_row=skip", "--json", scores)
    assert evaluated.code == 0, evaluated.err
    assert f'"count": {ROWS - 1}' in scores.read_text()


def test_wrong_column(command, train_words, evaluate_words):
    word = "data.mask_column=maks"
    command(*train_words, word).assert_one_sentence("maks", "caption", "did you mean 'mask'")
    command(*evaluate_words, word).assert_one_sentence("maks", "caption", "did you mean 'mask'")


def test_unknown_config_key(command, train_words, evaluate_words):
    command(*train_words, "schedule.stps=3").assert_one_sentence(
        "schedule.stps", "did you mean 'schedule.steps'"
    )
    command(*evaluate_words, "data.capton_column=x").assert_one_sentence(
        "data.capton_column", "did you mean 'data.caption_column'"
    )
    command(*evaluate_words, "schedule.steps=3").assert_one_sentence("schedule.steps", "data.")


def test_wrong_value(command, train_words):
    command(*train_words, "schedule.steps=many").assert_one_sentence("schedule.steps", "many")
    command(*train_words, "precision=fp32").assert_one_sentence("precision", "float32")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model.stem_width=0", "stem_width"),
        ("model.embedding_size=-1", "embedding_size"),
        ("model.vision_mixers=3", "vision_mixers"),
        ("model.patch_size=8.0", "patch_size"),
        ("optimizer.betas=[0.9]", "optimizer.betas"),
    ],
)
def test_wrong_model_and_list_values(command, train_words, override, named):
    command(*train_words, override).assert_one_sentence(named)


def test_a_caption_that_is_too_long_is_named_before_evaluating(command, folder, evaluate_words):
    metadata = folder / "test" / "metadata.csv"
    lines = metadata.read_text().splitlines()
    caption = next(csv.reader([lines[-1]]))[lines[0].split(",").index("caption")]
    metadata.write_text("\n".join(lines).replace(caption, " ".join(["red"] * 60)))
    command(*evaluate_words).assert_one_sentence("62 tokens", "at most 32")


def test_a_damaged_list_of_splits(command, folder, evaluate_words):
    (folder / "dataset_dict.json").write_text("{}")
    command(*evaluate_words).assert_one_sentence("dataset_dict.json", "damaged")


def test_a_csv_field_beyond_all_limits(command, folder, evaluate_words):
    with (folder / "test" / "metadata.csv").open("a") as file:
        file.write('x.png,y.png,"' + "a" * 200_000 + '"\n')
    command(*evaluate_words).assert_one_sentence("metadata.csv", "line")


def test_unknown_key_in_a_file(command, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("output_dir: x\ndata: {path: y}\noptimiser: {lr: 1}\n")
    result = command("train", "--config", file)
    result.assert_one_sentence("mine.yaml", "optimiser", "did you mean 'optimizer'")


def test_batch_larger_than_the_data(command, train_words, tmp_path):
    result = command(*train_words, "batch.size=64")
    result.assert_one_sentence("64", str(ROWS))
    assert not (tmp_path / "run").exists()


def test_training_that_diverges(command, train_words):
    words = ["optimizer.lr=1.0e30", "schedule.steps=5", "schedule.warmup_steps=0"]
    command(*train_words, *words).assert_one_sentence("step")


def test_missing_data(command, checkpoint, tmp_path, train_words):
    nowhere = tmp_path / "nowhere"
    command("eval", "model", checkpoint, "--data", nowhere).assert_one_sentence("nowhere")
    command(*train_words, f"data.path={nowhere}").assert_one_sentence("nowhere")


def test_missing_checkpoint_and_split(command, folder, evaluate_words, tmp_path):
    result = command("eval", "model", tmp_path / "nothing", *evaluate_words[3:])
    result.assert_one_sentence("nothing")
    command(*evaluate_words, "--split", "tset").assert_one_sentence("tset", "test")


def test_json_target_that_is_a_folder(command, evaluate_words, tmp_path):
    command(*evaluate_words, "--json", tmp_path).assert_one_sentence("--json", "is a folder")
