"""The two streams before they meet: a vision tower and a text tower."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from dualwave.models.blocks import AttentionBlock, SpectralBlock
from dualwave.models.configuration import DualStreamConfig


class ResidualConvolution(nn.Module):
    """A normed 3x3 convolution with its residual around it.

    Args:
        width: channels.
    """

    def __init__(self, width: int):
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(max(1, width // 16), width)

    def forward(self, features: Tensor) -> Tensor:
        """(B, width, H, W) to (B, width, H, W)."""
        return features + F.gelu(self.norm(self.convolution(features)), approximate="tanh")


class ConvolutionalStem(nn.Module):
    """Pixels to tokens by 3x3 convolutions that halve the resolution until a patch is one token.

    Small images need their strokes and colours resolved before they are cut into tokens; the
    features at full resolution also tell the saliency head where exactly an object ends.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: DualStreamConfig):
        super().__init__()
        halvings = int(math.log2(config.patch_size))
        widths = [config.stem_width * 2**level for level in range(halvings + 1)]
        self.pixels = nn.Conv2d(config.num_channels, widths[0], 3, padding=1)
        self.halvings = nn.ModuleList(
            nn.Conv2d(before, after, 3, stride=2, padding=1) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(nn.GroupNorm(max(1, width // 16), width) for width in widths[1:])
        self.residuals = nn.ModuleList(
            nn.Sequential(
                *(
                    ResidualConvolution(width)
                    for _ in range(config.stem_depth if level >= halvings - 2 else 0)
                )
            )
            for level, width in enumerate(widths[1:])
        )
        self.tokens = nn.Conv2d(widths[-1], config.vision_width, 1)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        """Embed.

        Args:
            pixel_values: (B, channels, H, W), normalised.

        Returns:
            Tokens (B, N, vision_width) and pixel features (B, stem_width, H, W).
        """
        pixel_values = pixel_values.contiguous(memory_format=torch.channels_last)
        pixel_features = F.gelu(self.pixels(pixel_values), approximate="tanh")
        features = pixel_features
        for halving, norm, residuals in zip(self.halvings, self.norms, self.residuals, strict=True):
            features = F.gelu(norm(halving(features)), approximate="tanh")
            features = residuals(features)
        return rearrange(self.tokens(features), "b c h w -> b (h w) c"), pixel_features


class VisionTower(nn.Module):
    """Stem, learned positions, and a stack of blocks whose mixers the configuration names.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: DualStreamConfig):
        super().__init__()
        height, width = config.grid
        self.stem = ConvolutionalStem(config)
        self.positions = nn.Parameter(torch.empty(height * width, config.vision_width))
        self.blocks = nn.ModuleList(vision_block(mixer, config) for mixer in config.vision_mixers)
        self.norm = nn.LayerNorm(config.vision_width, eps=config.layer_norm_eps)

    def forward(self, pixel_values: Tensor) -> tuple[Tensor, Tensor]:
        """Encode.

        Args:
            pixel_values: (B, channels, H, W), normalised.

        Returns:
            Tokens (B, N, vision_width), normed, and pixel features (B, stem_width, H, W).
        """
        tokens, pixel_features = self.stem(pixel_values)
        tokens = tokens + self.positions
        for block in self.blocks:
            tokens = block(tokens)
        return self.norm(tokens), pixel_features


def vision_block(mixer: str, config: DualStreamConfig) -> AttentionBlock | SpectralBlock:
    """A block of the vision stream with the named mixer."""
    if mixer == "attention":
        return AttentionBlock(
            config.vision_width, config.vision_heads, config.mlp_ratio, config.layer_norm_eps
        )
    return SpectralBlock(config.vision_width, config.grid, config.mlp_ratio, config.layer_norm_eps)


class TextTower(nn.Module):
    """Token and position embeddings and a stack of attention blocks in both directions.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: DualStreamConfig):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.text_width)
        self.positions = nn.Parameter(torch.empty(config.max_text_length, config.text_width))
        self.blocks = nn.ModuleList(
            AttentionBlock(
                config.text_width, config.text_heads, config.mlp_ratio, config.layer_norm_eps
            )
            for _ in range(config.text_layers)
        )
        self.norm = nn.LayerNorm(config.text_width, eps=config.layer_norm_eps)

    def forward(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        """Encode.

        Args:
            input_ids: (B, L) int64.
            mask: (B, L) bool, True where a token is real.

        Returns:
            (B, L, text_width), normed.
        """
        tokens = self.words(input_ids) + self.positions[: input_ids.shape[1]]
        for block in self.blocks:
            tokens = block(tokens, mask)
        return self.norm(tokens)


def masked_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real tokens: (B, L, C) and (B, L) bool to (B, C)."""
    weights = mask.to(tokens.dtype)[:, :, None]
    return (tokens * weights).sum(dim=1) / weights.sum(dim=1)
