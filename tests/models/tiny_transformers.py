"""Tiny random transformers models, and inputs for them with padding on either side."""

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

TEXT = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "vocab_size": 60}
BATCH, LENGTH = 2, 11
LEFT, RIGHT, NONE = "left", "right", "none"


def llama(**changes: Any) -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        **{**TEXT, **changes}, num_attention_heads=4, num_key_value_heads=2
    )
    return transformers.LlamaForCausalLM(config)


def mistral() -> transformers.PreTrainedModel:
    config = transformers.MistralConfig(
        **TEXT, num_attention_heads=4, num_key_value_heads=2, sliding_window=4
    )
    return transformers.MistralForCausalLM(config)


def bert(**changes: Any) -> transformers.PreTrainedModel:
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = transformers.BertConfig(**TEXT, num_attention_heads=4, **(dropout | changes))
    return transformers.BertModel(config)


def _vit() -> transformers.PreTrainedModel:
    vision = {name: size for name, size in TEXT.items() if name != "vocab_size"}
    config = transformers.ViTConfig(
        **vision,
        num_attention_heads=4,
        image_size=20,
        patch_size=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.ViTModel(config)


def _two_towers(kind: str) -> transformers.PreTrainedModel:
    tower = {name: size for name, size in TEXT.items() if name != "vocab_size"}
    text = {**TEXT, "num_attention_heads": 4, "max_position_embeddings": 16}
    if kind == "CLIP":
        text |= {"eos_token_id": 59, "bos_token_id": 58, "pad_token_id": 1}
    vision = {**tower, "num_attention_heads": 4, "image_size": 20, "patch_size": 4}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision)
    return getattr(transformers, f"{kind}Model")(config)


def _qwen() -> transformers.PreTrainedModel:
    config = transformers.Qwen2VLConfig(
        text_config={
            **TEXT,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [1, 1, 2],
            },
        },
        vision_config={
            "embed_dim": 32,
            "hidden_size": 32,
            "depth": 2,
            "num_heads": 4,
            "patch_size": 4,
            "mlp_ratio": 2,
        },
        image_token_id=50,
        video_token_id=51,
        vision_start_token_id=52,
        vision_end_token_id=53,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def tokens(padding: str, last: int | None = None) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(2, 50, (BATCH, LENGTH), generator=generator)
    if last is not None:
        ids[:, -1] = last
    inputs = {"input_ids": ids}
    if padding != NONE:
        visible = torch.ones(BATCH, LENGTH, dtype=torch.long)
        visible[0, slice(0, 4) if padding == LEFT else slice(-4, None)] = 0
        inputs["attention_mask"] = visible
    return inputs


def _pixels() -> Tensor:
    return torch.randn(BATCH, 3, 20, 20, generator=torch.Generator().manual_seed(4))


def _two_inputs(padding: str) -> dict[str, Tensor]:
    inputs = tokens(padding)
    inputs["input_ids"][:, 5] = 59  # the end of the text, whose features CLIP takes
    return {**inputs, "pixel_values": _pixels()}


def _qwen_inputs() -> dict[str, Tensor]:
    """Two pictures of different sizes in two texts; a token for each 2 x 2 patches."""
    ids = tokens(NONE)["input_ids"]
    for row, count in enumerate((2, 4)):
        ids[row, 1] = 52
        ids[row, 2 : 2 + count] = 50
        ids[row, 2 + count] = 53
    grids = torch.tensor([[1, 4, 2], [1, 4, 4]])
    patches = torch.randn(int(grids.prod(1).sum()), 3 * 2 * 4 * 4)
    return {
        "input_ids": ids,
        "pixel_values": patches,
        "image_grid_thw": grids,
        "mm_token_type_ids": (ids == 50).int(),
    }


CASES: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Tensor]], tuple[str, ...]]] = {}
for _padding in (NONE, LEFT, RIGHT):
    CASES |= {
        f"Llama, padding {_padding}": (llama, lambda p=_padding: tokens(p), ("logits",)),
        f"Mistral, padding {_padding}": (mistral, lambda p=_padding: tokens(p), ("logits",)),
        f"BERT, padding {_padding}": (bert, lambda p=_padding: tokens(p), ("last_hidden_state",)),
        f"CLIP, padding {_padding}": (
            lambda: _two_towers("CLIP"),
            lambda p=_padding: _two_inputs(p),
            ("logits_per_image", "text_embeds", "image_embeds"),
        ),
        f"SigLIP, padding {_padding}": (
            lambda: _two_towers("Siglip"),
            lambda p=_padding: _two_inputs(p),
            ("logits_per_image", "text_embeds", "image_embeds"),
        ),
    }
CASES["ViT"] = (_vit, lambda: {"pixel_values": _pixels()}, ("last_hidden_state",))
CASES["Qwen2-VL"] = (_qwen, _qwen_inputs, ("logits",))
