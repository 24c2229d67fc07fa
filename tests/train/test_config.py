"""Reading configs: what is found, what is refused, and in which words."""

import pytest
from pydantic import BaseModel

from dualwave.train.config import TrainConfig, load_config, shipped_configs


@pytest.fixture
def config_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("output_dir: runs/mine\ndata:\n  path: my_data\n")
    return path


def test_every_shipped_config_is_found_by_its_bare_name_and_is_valid():
    assert "demo.yaml" in shipped_configs()
    for name in shipped_configs():
        assert load_config(name) == load_config(name.removesuffix(".yaml"))


def test_overrides_win_over_the_file_and_are_yaml(config_file):
    config = load_config(
        str(config_file),
        ["optimizer.lr=1e-4", "batch.size=8", "model.vision_width=64", "batch.token_budget=null"],
    )
    assert config.optimizer.lr == 1e-4
    assert config.batch.size == 8
    assert config.batch.token_budget is None
    assert config.model == {"vision_width": 64}


def test_every_field_says_what_it_is():
    sections = [TrainConfig]
    for section in sections:
        for name, field in section.model_fields.items():
            assert field.description, name
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                sections.append(field.annotation)
    assert len(sections) == 6


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("batch.sise=8", ["'batch.sise'", "size, token_budget, accumulation", "'batch.size'"]),
        ("lr=0.1", ["'lr'", "output_dir, data, seed", "did you mean 'optimizer.lr'?"]),
        ("data.pth=x", ["'data.pth'", "'data.path'"]),
        ("batch.size=0", ["batch.size is 0", "greater than 0"]),
        ("batch.size=many", ["batch.size is 'many'", "a valid integer"]),
        ("schedule.steps=true", ["schedule.steps is True", "a valid integer"]),
        ("precision=fp61", ["precision is 'fp61'", "'bf16'", "did you mean 'fp16'?"]),
        ("optimizer.betas=[0.9]", ["optimizer.betas"]),
        ("model={[a]: 1}", ["a key must be a plain word"]),
        ("output_dir=''", ["output_dir is ''"]),
        ("seed=18446744073709551616", ["seed"]),
        ("loss={saliency: 0, contrastive: 0}", ["nothing would be learned"]),
        ("loss.contrastive=0", ["contrastive_only_share"]),
        ("optimizer.lr=.nan", ["optimizer.lr", "finite number"]),
        ("schedule.warmup_steps=99999", ["schedule.warmup_steps", "99999", "820"]),
        ("model.vision_widht=8", ["'vision_widht'", "did you mean 'vision_width'?"]),
        ("model.vocab_size=8", ["model", "'vocab_size'", "tokenizer"]),
        ("model.patch_size=7", ["model", "patch_size", "power of two"]),
        ("model.vision_mixers=[window]", ["model", "'window'", "spectral"]),
        ("batch=8", ["batch is 8", "dictionary"]),
        ("seed", ["'seed'", "key.sub=value"]),
        ("seed.sub=1", ["seed is 0"]),
        ("seed=[1", ["'seed=[1'", "not valid YAML"]),
    ],
)
def test_a_wrong_override_is_one_sentence_that_names_it(override, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load_config("demo", [override])
    sentence = str(caught.value)
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_a_missing_key_is_named_with_what_it_is_for(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("data:\n  path: my_data\n")
    with pytest.raises(ValueError, match=r"mine.yaml has no 'output_dir', .*: Folder of the run"):
        load_config(str(path))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output_dir: a\ndata: [1\n", "line 3"),
        ("seed: 1\nseed: 2\n", "line 2, column 1, .* 'seed' is there twice"),
        ("- 1\n", "holds list, not keys"),
    ],
)
def test_broken_yaml_names_the_file_and_the_line(tmp_path, text, words):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"broken.yaml.*{words}"):
        load_config(str(path))


def test_an_unknown_config_is_offered_the_nearest_shipped_one():
    with pytest.raises(FileNotFoundError, match=r"'dmeo'.*did you mean 'demo.yaml'\?"):
        load_config("dmeo")
