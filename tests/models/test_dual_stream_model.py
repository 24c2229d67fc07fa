import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoModel, AutoProcessor

from dualwave.models import DualStreamConfig, DualStreamModel, DualStreamProcessor, load

CAPTIONS = ["the red three", "every blue seven", "the seven left of the green two"]


def make_model(**fields) -> DualStreamModel:
    torch.manual_seed(0)
    processor = DualStreamProcessor.from_captions(CAPTIONS, image_size=32)
    config = DualStreamConfig(
        **{
            "image_size": 32,
            "vision_width": 32,
            "text_width": 24,
            "vision_heads": 2,
            "text_heads": 2,
            "stem_width": 4,
            "vision_mixers": ["spectral", "attention"],
            "fusion_mixers": ["spectral", "attention"],
            "text_layers": 1,
            "vocab_size": len(processor.tokenizer),
            **fields,
        }
    )
    model = DualStreamModel(config).eval()
    # Every parameter redrawn, so that nothing hides behind a zero or a one of the initialisation.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.processor = processor
    return model


def random_image(height=20, width=30, seed=0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture(scope="module")
def model() -> DualStreamModel:
    return make_model()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(path)  # the processor with it
    return path


def test_a_reloaded_model_gives_the_same_bits(model, folder):
    inputs = model.processor(images=[random_image(seed=s) for s in range(3)], text=CAPTIONS)
    with torch.no_grad():
        expected = model(**inputs)
        for reloaded in (
            load(folder),
            DualStreamModel.from_pretrained(folder).eval(),
            AutoModel.from_pretrained(folder).eval(),
        ):
            assert type(reloaded) is DualStreamModel
            output = reloaded(**inputs)
            for name, value in expected.items():
                assert torch.equal(output[name], value), name


def test_the_processor_is_saved_beside_the_weights(model, folder):
    loaded = load(folder)
    inputs = {"images": [random_image(seed=s) for s in range(3)], "text": CAPTIONS}
    for processor in (loaded.processor, AutoProcessor.from_pretrained(folder)):
        expected, encoded = model.processor(**inputs), processor(**inputs)
        assert encoded.keys() == expected.keys() == {"pixel_values", "input_ids", "attention_mask"}
        assert all(torch.equal(encoded[name], value) for name, value in expected.items())
    assert AutoConfig.from_pretrained(folder).vision_mixers == ["spectral", "attention"]
    assert not loaded.training


def test_a_loaded_model_can_be_saved_and_loaded_again(model, folder, tmp_path):
    load(folder).save_pretrained(tmp_path / "again")
    again = load(tmp_path / "again").saliency(random_image(), "the red three")
    np.testing.assert_array_equal(again, model.saliency(random_image(), "the red three"))


def test_padding_does_not_change_a_row(model):
    images = [random_image(seed=s) for s in range(3)]
    with torch.no_grad():
        together = model(**model.processor(images=images, text=CAPTIONS))
        for i, (image, caption) in enumerate(zip(images, CAPTIONS, strict=True)):
            alone = model(**model.processor(images=[image], text=[caption]))
            for name in ("image_embeds", "text_embeds", "saliency_logits"):
                torch.testing.assert_close(alone[name][0], together[name][i], rtol=0, atol=2e-5)


def test_the_text_changes_the_map_and_not_the_image_embedding(model):
    inputs = model.processor(images=[random_image()] * 2, text=CAPTIONS[:2])
    with torch.no_grad():
        output = model(**inputs)
    assert torch.equal(output.image_embeds[0], output.image_embeds[1])
    assert (output.saliency_logits[0] - output.saliency_logits[1]).abs().max() > 1e-2
    for embeds in (output.image_embeds, output.text_embeds):
        torch.testing.assert_close(embeds.norm(dim=-1), torch.ones(2))


def test_every_parameter_learns(model):
    model = make_model().train()
    output = model(
        **model.processor(images=[random_image(seed=s) for s in range(3)], text=CAPTIONS)
    )
    similarity = output.image_embeds @ output.text_embeds.T * output.logit_scale
    loss = output.saliency_logits.square().mean() + similarity.diagonal().mean()
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_an_image_with_several_texts_is_encoded_once_with_the_same_result(model):
    images = [random_image(seed=seed) for seed in range(2)]
    rows = model.processor(images=[images[0], images[1], images[0]], text=CAPTIONS)
    shared = rows | {"pixel_values": rows["pixel_values"][:2]}
    with torch.no_grad():
        expected = model(**rows)
        output = model(**shared, image_index=torch.tensor([0, 1, 0]))
    for name, value in expected.items():
        torch.testing.assert_close(output[name], value, rtol=0, atol=2e-5)


def test_the_towers_alone_give_the_same_embeddings_and_no_map(model):
    inputs = model.processor(images=[random_image(seed=s) for s in range(3)], text=CAPTIONS)
    with torch.no_grad():
        whole, towers = model(**inputs), model(**inputs, with_saliency=False)
    assert towers.saliency_logits is None
    assert torch.equal(towers.image_embeds, whole.image_embeds)
    assert torch.equal(towers.text_embeds, whole.text_embeds)


def test_a_region_changes_the_image_embedding_only(model):
    inputs = model.processor(images=[random_image(seed=s) for s in range(3)], text=CAPTIONS)
    regions = torch.zeros(3, 32, 32, dtype=torch.bool)
    regions[0, :8, :8] = True  # exactly the first token
    regions[1] = True  # everything: the same as no region; the third row has none at all
    with torch.no_grad():
        plain, regional = model(**inputs), model(**inputs, region_masks=regions)
        tokens, _ = model.vision_tower(inputs["pixel_values"])
        first_token = model.contrastive_head.image_projection(tokens[0, 0])
    torch.testing.assert_close(regional.image_embeds[1:], plain.image_embeds[1:])
    torch.testing.assert_close(regional.image_embeds[0], first_token / first_token.norm())
    assert torch.equal(regional.saliency_logits, plain.saliency_logits)


def test_gradient_checkpointing_gives_the_same_gradients():
    model = make_model().train()
    inputs = model.processor(images=[random_image(seed=s) for s in range(3)], text=CAPTIONS)

    def gradients():
        model.zero_grad()
        output = model(**inputs)
        (output.saliency_logits.square().mean() + output.image_embeds.sum()).backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    plain = gradients()
    # The method's name changes in a later transformers; the older one is deprecated there.
    enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
    enable()
    checkpointed = gradients()
    assert plain.keys() == checkpointed.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, rtol=0, atol=1e-6)


def test_saliency_takes_what_users_hold(model, tmp_path):
    image = random_image()
    image.save(tmp_path / "picture.png")
    array = np.asarray(image)
    expected = model.saliency(image, "the red three")
    assert expected.shape == (20, 30)
    assert expected.dtype == np.float32
    assert 0 <= expected.min() < expected.max() <= 1
    for same in (
        str(tmp_path / "picture.png"),
        tmp_path / "picture.png",
        array,
        array.astype(np.float32) / 255,
        torch.from_numpy(array.copy()).permute(2, 0, 1),
        torch.from_numpy(array.copy()).permute(2, 0, 1).double() / 255,
    ):
        np.testing.assert_array_equal(model.saliency(same, "the red three"), expected)
    grey = image.convert("L")
    np.testing.assert_array_equal(
        model.saliency(np.asarray(grey), "the red three"), model.saliency(grey, "the red three")
    )


def test_saliency_lists_give_lists(model):
    images = [random_image(20, 30, seed=0), random_image(41, 23, seed=1)]
    pairs = model.saliency(images, ["the red three", "every blue seven"])
    assert [m.shape for m in pairs] == [(20, 30), (41, 23)]
    one_text = model.saliency(images, "the red three")
    one_image = model.saliency(images[0], ["the red three", "every blue seven"])
    assert len(one_text) == len(one_image) == 2
    np.testing.assert_allclose(one_text[0], pairs[0], atol=1e-5)
    np.testing.assert_allclose(one_image[0], pairs[0], atol=1e-5)
    assert model.saliency([], []) == []
    assert len(model.saliency([images[0]], "the red three")) == 1


def test_saliency_works_in_training_mode_and_leaves_it(model):
    image = random_image()
    expected = model.saliency(image, "the red three")
    model.train()
    try:
        np.testing.assert_array_equal(model.saliency(image, "the red three"), expected)
        assert model.training
    finally:
        model.eval()


@pytest.mark.parametrize(
    ("image", "sentence"),
    [
        (np.zeros((4, 4, 4), np.uint8), r"\(H, W, 3\)"),
        (np.zeros((0, 4, 3), np.uint8), r"\(H, W, 3\)"),
        (np.full((4, 4, 3), 1.5), r"lie in \[0, 1\]"),
        (np.full((4, 4, 3), np.nan), r"lie in \[0, 1\]"),
        (np.zeros((4, 4, 3), np.int64), "uint8 or floating"),
        (torch.zeros(4, 4, 3), r"tensor \(3, H, W\)"),
        (3, "not int"),
    ],
)
def test_what_is_not_an_image_is_named(model, image, sentence):
    with pytest.raises(ValueError, match=sentence):
        model.saliency(image, "the red three")


def test_paths_that_do_not_hold_an_image(model, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no image file .*missing\.png"):
        model.saliency(tmp_path / "missing.png", "the red three")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG not really")
    with pytest.raises(ValueError, match=r"broken\.png' cannot be read"):
        model.saliency(tmp_path / "broken.png", "the red three")


def test_lists_of_other_lengths_are_refused(model):
    with pytest.raises(ValueError, match="2 images and 3 texts"):
        model.saliency([random_image()] * 2, CAPTIONS)


def test_inputs_of_another_size_are_refused(model):
    ids = torch.ones(1, 5, dtype=torch.long)
    with pytest.raises(ValueError, match=r"\(B, 3, 32, 32\)"):
        model(torch.zeros(1, 3, 64, 64), ids, ids)
    ids = torch.ones(1, 33, dtype=torch.long)
    with pytest.raises(ValueError, match="max_text_length 32"):
        model(torch.zeros(1, 3, 32, 32), ids, ids)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"vision_mixers": ["spectral", "fourier"]}, "'fourier'"),
        ({"fusion_mixers": ["none"]}, "fusion_mixers holds 'none'"),
        ({"patch_size": 6}, "power of two"),
        ({"image_size": 60}, "56 would be"),
        ({"vision_width": 30, "vision_heads": 4}, "vision_width 30"),
        ({"vision_width": 16.0}, "vision_width must be a whole number from 1 on, not 16.0"),
        ({"mlp_ratio": 0}, "mlp_ratio must be a whole number from 1 on, not 0"),
        ({"text_layers": -1}, "text_layers must be"),
        ({"image_size": "big"}, "image_size must be a whole number from 2 on, not 'big'"),
        ({"stem_width": 25}, "stem_width 25 does not"),
        ({"num_channels": 4}, "num_channels must be 3"),
        ({"layer_norm_eps": -1.0}, "layer_norm_eps must be"),
        ({"vision_mixers": 3}, "vision_mixers must be a list"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        DualStreamConfig(**fields)


def test_load_refuses_what_is_not_whole(folder, tmp_path):
    def copy(name):
        target = tmp_path / name
        target.mkdir()
        for file in folder.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        return target

    with pytest.raises(FileNotFoundError, match="no checkpoint folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        load(tmp_path)

    target = copy("no_weights")
    (target / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"no \.safetensors file"):
        load(target)

    target = copy("truncated")
    whole = (folder / "model.safetensors").read_bytes()
    (target / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cannot be loaded"):
        load(target)

    target = copy("other_type")
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "model_type": "clip"}))
    with pytest.raises(ValueError, match="type 'clip'"):
        load(target)

    target = copy("no_tokenizer")
    (target / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="no usable processor"):
        load(target)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"text_layers": 2}, "missing keys: .*text_tower.blocks.1"),
        ({"text_layers": 0}, "unexpected keys: .*text_tower.blocks.0"),
        ({"embedding_size": 48}, "mismatched keys: contrastive_head.image_projection.weight, "),
    ],
)
def test_load_refuses_weights_that_do_not_match(folder, tmp_path, fields, kind):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(ValueError, match=kind):
        load(tmp_path)


def test_unknown_words_become_unk(model):
    tokenizer = model.processor.tokenizer
    ids = model.processor(text=["The RED zebra"])["input_ids"][0].tolist()
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", "the", "red", "[UNK]", "[SEP]"]


def test_captions_without_words_are_refused():
    with pytest.raises(ValueError, match="no word"):
        DualStreamProcessor.from_captions(["", "  "])
