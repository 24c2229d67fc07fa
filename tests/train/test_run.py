"""Whole tiny runs in this process."""

import json
import math
import signal
import sys
from pathlib import Path

import pytest
import torch

import dualwave
from dualwave.models import DualStreamConfig, DualStreamModel, DualStreamProcessor
from dualwave.train import run as run_module
from dualwave.train import step as step_module
from dualwave.train.batches import BatchLoader
from dualwave.train.checkpoint import list_checkpoints, load_state
from dualwave.train.config import load_config
from dualwave.train.data import open_rows
from dualwave.train.interrupts import TrainingInterrupted
from dualwave.train.losses import saliency_loss
from dualwave.train.metrics_log import MetricsLog, read_metrics
from dualwave.train.optimizer import build_optimizer
from dualwave.train.output import RunFolder
from dualwave.train.run import train
from dualwave.train.setup import build_model, build_processor, model_config, open_training_rows
from dualwave.train.step import Stepper, TrainingDiverged


def test_a_run_leaves_a_model_metrics_and_events_and_repeats_with_its_seed(tiny_run, capsys):
    config = tiny_run()
    result = train(config)
    assert result.steps == 6
    assert len(result.losses) == 6
    assert "effective batch 9 rows a step" in capsys.readouterr().out

    lines = read_metrics(result.model_dir.parent / "metrics.jsonl")
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["loss"] for line in lines] == result.losses
    assert set(lines[0]) == {
        "step", "epoch", "loss", "saliency_loss", "contrastive_loss", "learning_rate",
        "grad_norm", "logit_scale", "samples_per_second", "padding_share", "seconds",
    }  # fmt: skip
    assert list((result.model_dir.parent / "tensorboard").glob("events.*"))
    assert load_config(str(result.model_dir.parent / "config.yaml")) == config

    model = dualwave.load(result.model_dir)
    trained = dualwave.load(result.model_dir.parent / "checkpoints" / "step_00000006")
    for (name, weight), other in zip(
        model.state_dict().items(), trained.state_dict().values(), strict=True
    ):
        assert torch.equal(weight, other), name

    assert train(tiny_run("again")).losses == result.losses
    assert train(tiny_run("other", seed=1)).losses != result.losses


def test_the_loss_falls(tiny_run):
    losses = train(tiny_run(schedule={"steps": 40, "warmup_steps": 5})).losses
    assert sum(losses[-5:]) / 5 < 0.75 * losses[0]


def test_accumulated_batches_have_the_gradient_of_one_big_batch(tiny_run):
    no_contrast = {"contrastive": 0.0}
    first_grad_norms = []
    for name, batch in {"big": {"size": 66}, "parts": {"size": 22, "accumulation": 3}}.items():
        config = tiny_run(
            name,
            batch=batch,
            loss=no_contrast,
            schedule={"steps": 1, "warmup_steps": 0},
            gradient_checkpointing=name == "parts",
        )
        train(config)
        (line,) = read_metrics(RunFolder(Path(config.output_dir)).metrics)
        first_grad_norms.append((line["grad_norm"], line["saliency_loss"]))
    assert first_grad_norms[0] == pytest.approx(first_grad_norms[1], rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_runs_stay_near_float32(tiny_run, precision):
    reference = train(tiny_run("float32")).losses
    losses = train(tiny_run(precision, precision=precision)).losses
    assert losses == pytest.approx(reference, rel=0.03)
    assert losses != reference


def test_an_fp16_step_that_overflows_is_left_out_and_counted(tiny_run, monkeypatch):
    def with_a_huge_scale(self, *arguments):
        original(self, *arguments)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)

    original = Stepper.__init__
    monkeypatch.setattr(Stepper, "__init__", with_a_huge_scale)
    result = train(tiny_run(precision="fp16"))
    lines = read_metrics(result.model_dir.parent / "metrics.jsonl")
    assert lines[0]["skipped_steps"] == 1
    assert not math.isfinite(lines[0]["grad_norm"])
    assert all(math.isfinite(loss) for loss in result.losses)


def test_ctrl_c_leaves_a_checkpoint_from_which_the_same_losses_follow(tiny_run, monkeypatch, capfd):
    unbroken = train(tiny_run("unbroken", checkpoint_every=100)).losses
    before = signal.getsignal(signal.SIGINT)  # ignored, if the tests run in a shell's background

    backward = Stepper.backward
    calls = []

    def interrupted_in_the_second_step(self, *arguments, **options):
        calls.append(None)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return backward(self, *arguments, **options)

    config = tiny_run("broken", checkpoint_every=100)
    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "backward", interrupted_in_the_second_step)
        with pytest.raises(TrainingInterrupted) as caught:
            train(config)
    assert caught.value.code == 130
    assert "--resume" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before

    folder = RunFolder(Path(config.output_dir))
    made = list_checkpoints(folder.checkpoints)[-1]
    step = load_state(made)["step"]
    assert step in (2, 3)
    with pytest.raises(ValueError, match="already holds a run: add --resume"):
        train(config)

    # Lines of steps that a kill has made after the checkpoint are not kept twice.
    with folder.metrics.open("a") as file:
        file.write(json.dumps({"step": step + 1, "loss": 0.0}) + "\n" + '{"step": 5, "lo')
    (folder.checkpoints / ".writing-step_00000005").mkdir()

    resumed = train(config, resume=True)
    assert resumed.losses == unbroken[step:]
    assert [line["loss"] for line in read_metrics(folder.metrics)] == unbroken
    assert not list(folder.checkpoints.glob(".writing-*"))
    # Nothing is left to do, and that is no mistake.
    assert train(config, resume=True).losses == []


def test_old_checkpoints_go_when_newer_ones_are_there(tiny_run):
    config = tiny_run(checkpoint_every=1, keep_checkpoints=2)
    train(config)
    kept = list_checkpoints(RunFolder(Path(config.output_dir)).checkpoints)
    assert [path.name for path in kept] == ["step_00000005", "step_00000006"]


def test_resuming_needs_a_checkpoint_and_the_same_run(tiny_run):
    config = tiny_run()
    with pytest.raises(ValueError, match="no complete checkpoint to resume from"):
        train(config, resume=True)
    train(config)
    values = config.model_dump()
    for section, value, words in (
        ("model", values["model"] | {"vision_width": 64}, r"model\.vision_width is 64, .* has 32"),
        ("batch", {"size": 11}, r"batch\.size is 11, .* has 9"),
        ("data", values["data"] | {"on_bad_row": "skip"}, r"data\.on_bad_row is 'skip'"),
        ("seed", 5, "seed is 5, .* has 0"),
        ("schedule", {"steps": 5, "warmup_steps": 0}, "has already made 6 steps"),
    ):
        with pytest.raises(ValueError, match=words):
            train(tiny_run(**{section: value}), resume=True)


def test_a_run_may_be_made_longer(tiny_run):
    train(tiny_run())
    result = train(tiny_run(schedule={"steps": 8, "warmup_steps": 2}), resume=True)
    assert (result.steps, len(result.losses)) == (8, 2)


def test_a_loss_that_is_not_finite_stops_with_step_rows_and_rate(tiny_run, monkeypatch):
    def poisoned(logits, masks):
        calls.append(None)
        loss = saliency_loss(logits, masks)
        return loss * float("nan") if len(calls) == 3 else loss

    calls = []
    monkeypatch.setattr(step_module, "saliency_loss", poisoned)
    config = tiny_run()
    with pytest.raises(TrainingDiverged) as caught:
        train(config)
    sentence = str(caught.value)
    assert "the loss is nan in step 3 (learning rate 0.00" in sentence
    ids = set(open_rows(config.data, "train").ids)
    named = sentence.split("have the ids ")[1].split(":")[0].split(", ")
    assert len(set(named)) == 9
    assert set(named) <= ids


def test_mistakes_are_found_before_a_model_is_built(tiny_run, tiny_model, monkeypatch):
    def no_model(*arguments):
        raise AssertionError("a model was built")

    monkeypatch.setattr(run_module, "build_model", no_model)
    for sections, words in (
        ({"batch": {"size": 67}}, "batch.size 67 is larger than the 66 rows of split 'train'"),
        ({"batch": {"size": 9, "token_budget": 3}}, "tokens, too many for batch.token_budget 3 on"),
        (
            {"model": tiny_model | {"max_text_length": 4}},
            r"row \d+ .* is 4: set it to \d+",
        ),
        ({"data": {"path": "nowhere/at/all"}}, "nowhere/at/all"),
    ):
        config = tiny_run(**sections)
        with pytest.raises(ValueError, match=words):
            train(config)
        assert not Path(config.output_dir).exists()


def test_without_tensorboard_one_line_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with MetricsLog(tmp_path) as log:
        log.write({"step": 1, "loss": 0.5})
    assert "pip install 'dualwave[tensorboard]'" in capsys.readouterr().out
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.5}]


def test_batches_are_what_the_processor_makes_with_and_without_the_cache(tiny_run):
    config = tiny_run()
    rows = open_rows(config.data, "train")
    processor = DualStreamProcessor.from_captions(rows.captions, image_size=48)
    chosen = [3, 0, 65]
    expected = processor(
        images=[rows[i].image for i in chosen], text=[rows.captions[i] for i in chosen]
    )
    for largest_cache in (0, 1 << 30):
        loader = BatchLoader(rows, processor, largest_cache)
        for batch in (*loader.load_ahead([chosen, chosen], workers=1), loader.load(chosen)):
            for name in ("pixel_values", "input_ids", "attention_mask"):
                torch.testing.assert_close(getattr(batch, name), expected[name])
            shares = torch.tensor([rows[i].mask.mean() for i in chosen])
            torch.testing.assert_close(
                batch.masks.double().mean(dim=(1, 2)), shares, atol=0.02, rtol=0
            )
    same = [i for i, caption in enumerate(rows.captions) if caption == rows.captions[0]]
    batch = loader.load(range(66))
    assert [i for i in range(66) if batch.caption_ids[i] == batch.caption_ids[0]] == same
    assert len(set(batch.region_ids.tolist())) == 66
    assert batch.image_index.tolist() == list(range(66))


def test_a_scene_of_several_rows_is_prepared_once(tiny_run, scenes_of_several_rows):
    config = tiny_run(data={"path": str(scenes_of_several_rows)})
    rows = open_training_rows(config)
    loader = BatchLoader(rows, build_processor(config, rows))
    indices = [i for i, scene in enumerate(rows.scenes) if scene <= "train-000005"]
    assert len(indices) > 6
    batch = loader.load(indices)
    assert len(batch.pixel_values) == 6
    alone = torch.cat([loader.load([i]).pixel_values for i in indices])
    torch.testing.assert_close(batch.pixel_values[batch.image_index], alone, rtol=0, atol=0)
    for i, first in enumerate(indices):
        for j, second in enumerate(indices):
            same_picture = rows.scenes[first] == rows.scenes[second]
            same_region = same_picture and bool((rows[first].mask == rows[second].mask).all())
            assert (batch.region_ids[i] == batch.region_ids[j]) == same_region


def test_rows_of_one_scene_with_different_pictures_are_named(tiny_run, scenes_of_several_rows):
    config = tiny_run(data={"path": str(scenes_of_several_rows)})
    rows = open_training_rows(config)
    loader = BatchLoader(rows, build_processor(config, rows))
    other = rows.scenes.index("train-000060")
    rows.scenes[other] = "train-000000"
    with pytest.raises(ValueError, match=r"'train-000000' and 'train-000060' have the same scene"):
        loader.load([0, other])


def test_the_first_steps_train_the_towers_alone(tiny_run):
    config = tiny_run(schedule={"steps": 6, "warmup_steps": 2, "contrastive_only_share": 0.5})
    train(config)
    lines = read_metrics(RunFolder(Path(config.output_dir)).metrics)
    assert [line["saliency_loss"] is None for line in lines] == [True] * 3 + [False] * 3
    assert lines[0]["loss"] == pytest.approx(0.1 * lines[0]["contrastive_loss"])
    begun, ended = (
        dualwave.load(Path(config.output_dir) / "checkpoints" / f"step_0000000{step}").state_dict()
        for step in (3, 6)
    )
    moved = {name for name, weight in begun.items() if not torch.equal(weight, ended[name])}
    assert any(name.startswith("fusion_blocks") for name in moved)
    processor = dualwave.load(Path(config.output_dir) / "model").processor
    fresh = build_model(model_config(config, processor), config.seed)
    for name, weight in fresh.state_dict().items():
        if name.startswith(("fusion_blocks", "saliency_head")):
            assert torch.equal(weight, begun[name]), name


def test_norms_biases_tables_and_scalars_are_not_decayed(tiny_run, tiny_model):
    model = DualStreamModel(DualStreamConfig(**tiny_model))
    optimizer = build_optimizer(model, tiny_run().optimizer)
    decays = {
        id(parameter): group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    by_name = {name: decays[id(parameter)] for name, parameter in model.named_parameters()}
    for name in ("text_tower.words.weight", "text_tower.positions", "vision_tower.positions"):
        assert by_name[name] == 0, name
    assert by_name["contrastive_head.log_scale"] == 0
    assert by_name["contrastive_head.image_projection.weight"] == 0.05
    assert by_name["saliency_head.norm.weight"] == by_name["saliency_head.pixels.bias"] == 0
    assert by_name["saliency_head.pixels.weight"] == 0.05
