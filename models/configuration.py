"""The configuration of dual-stream models."""

from typing import Any

from transformers import PreTrainedConfig

MIXERS = ("attention", "spectral")

_SMALLEST = {
    "image_size": 2,
    "patch_size": 2,
    "num_channels": 1,
    "stem_width": 1,
    "stem_depth": 0,
    "vision_width": 1,
    "vision_heads": 1,
    "text_width": 1,
    "text_layers": 0,
    "text_heads": 1,
    "vocab_size": 1,
    "max_text_length": 1,
    "mlp_ratio": 1,
    "embedding_size": 1,
    "pixel_feature_width": 1,
}
"""Smallest value of every whole-number field."""


class DualStreamConfig(PreTrainedConfig):
    """Sizes and block order of a `DualStreamModel`.

    Args:
        image_size: side of the square input in pixels.
        patch_size: side of a vision token in pixels; a power of two that divides `image_size`.
        num_channels: colour channels of the input.
        stem_width: channels of the convolutional stem at full resolution, doubled by every
            halving of the resolution.
        stem_depth: residual convolutions at each of the stem's two lowest resolutions.
        vision_width: channels of a vision token.
        vision_mixers: the mixer of each block of the vision tower, "spectral" or "attention".
        vision_heads: attention heads of the vision stream.
        text_width: channels of a text token.
        text_layers: blocks of the text tower.
        text_heads: attention heads of the text stream.
        vocab_size: tokens of the vocabulary.
        max_text_length: longest text in tokens, the end marks included.
        fusion_mixers: one fusion block an entry; how its vision stream mixes tokens after the
            text has conditioned it: "spectral" (the conditioned filter alone) or "attention" (a
            self-attention block follows the filter).
        mlp_ratio: hidden width of each MLP over its input width.
        embedding_size: width of the space that the contrastive head compares in.
        pixel_feature_width: channels of the full-resolution features that the saliency head reads.
        layer_norm_eps: epsilon of every LayerNorm.
        initial_logit_scale: contrastive logits are cosine * exp(this); ln(1 / 0.07) as in CLIP.
        pad_token_id: id of the padding token.

    Raises:
        ValueError: sizes that do not fit together, or an unknown mixer.
    """

    model_type = "dualwave"

    image_size: int = 64
    patch_size: int = 8
    num_channels: int = 3
    stem_width: int = 16
    stem_depth: int = 1
    vision_width: int = 128
    vision_mixers: list[str] | tuple[str, ...] = ("spectral", "spectral", "attention", "attention")
    vision_heads: int = 4
    text_width: int = 128
    text_layers: int = 2
    text_heads: int = 4
    vocab_size: int = 64
    max_text_length: int = 32
    fusion_mixers: list[str] | tuple[str, ...] = ("spectral", "spectral", "attention")
    mlp_ratio: int = 4
    embedding_size: int = 64
    pixel_feature_width: int = 16
    layer_norm_eps: float = 1e-6
    initial_logit_scale: float = 2.6592
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self._check_numbers()
        patch = self.patch_size
        if patch < 2 or patch & (patch - 1):
            raise ValueError(f"patch_size must be a power of two of at least 2, not {patch}.")
        widths = [self.stem_width << level for level in range(1, patch.bit_length())]
        if any(width % max(1, width // 16) for width in widths):
            raise ValueError(
                f"stem_width {self.stem_width} does not fall into groups of about 16 channels at "
                "every resolution: a multiple of 8 does."
            )
        if self.image_size < patch or self.image_size % patch:
            raise ValueError(
                f"image_size {self.image_size} is not a multiple of patch_size {patch}: "
                f"{max(patch, self.image_size // patch * patch)} would be."
            )
        for width_name, heads_name in (
            ("vision_width", "vision_heads"),
            ("text_width", "text_heads"),
        ):
            width, heads = getattr(self, width_name), getattr(self, heads_name)
            if heads < 1 or width < 1 or width % heads:
                raise ValueError(f"{width_name} {width} is not a multiple of {heads_name} {heads}.")
        for list_name in ("vision_mixers", "fusion_mixers"):
            for mixer in getattr(self, list_name):
                if mixer not in MIXERS:
                    raise ValueError(
                        f"{list_name} holds {mixer!r}: a mixer is one of {', '.join(MIXERS)}."
                    )

    def _check_numbers(self) -> None:
        for name, smallest in _SMALLEST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
                raise ValueError(
                    f"{name} must be a whole number from {smallest} on, not {value!r}."
                )
        if self.num_channels != 3:
            raise ValueError(f"num_channels must be 3 (RGB pictures), not {self.num_channels}.")
        for name in ("layer_norm_eps", "initial_logit_scale"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 100:
                raise ValueError(f"{name} must be a number above 0 and below 100, not {value!r}.")
        for name in ("vision_mixers", "fusion_mixers"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple):
                raise ValueError(f"{name} must be a list of mixers, not {value!r}.")

    @property
    def grid(self) -> tuple[int, int]:
        """Vision tokens as (rows, columns)."""
        side = self.image_size // self.patch_size
        return side, side
