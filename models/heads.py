"""What is read off the streams: contrastive embeddings and saliency maps."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from dualwave.models.configuration import DualStreamConfig


class ContrastiveHead(nn.Module):
    """Both streams' means, projected onto one sphere.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: DualStreamConfig):
        super().__init__()
        self.image_projection = nn.Linear(config.vision_width, config.embedding_size, bias=False)
        self.text_projection = nn.Linear(config.text_width, config.embedding_size, bias=False)
        self.log_scale = nn.Parameter(torch.empty(()))

    def forward(self, vision_mean: Tensor, text_mean: Tensor) -> tuple[Tensor, Tensor]:
        """(B, vision_width) and (B, text_width) to two (B, embedding_size) of unit norm."""
        image = F.normalize(self.image_projection(vision_mean), dim=-1)
        return image, F.normalize(self.text_projection(text_mean), dim=-1)


class SaliencyHead(nn.Module):
    """A map at the image's resolution from fused tokens and pixel features.

    Every token gives a linear classifier over the pixel features around it (which colour and
    stroke to light up, and whether at all); the classifiers are interpolated between tokens.

    Args:
        config: the model's configuration.
    """

    def __init__(self, config: DualStreamConfig):
        super().__init__()
        self.grid = config.grid
        features = config.pixel_feature_width
        self.pixels = nn.Conv2d(config.stem_width, features, 3, padding=1)
        self.norm = nn.LayerNorm(config.vision_width, eps=config.layer_norm_eps)
        self.classifier = nn.Linear(config.vision_width, features + 1)

    def forward(self, vision: Tensor, pixel_features: Tensor) -> Tensor:
        """Score every pixel.

        Args:
            vision: (B, N, vision_width), fused.
            pixel_features: (B, stem_width, H, W).

        Returns:
            (B, H, W) logits.
        """
        pixels = F.gelu(self.pixels(pixel_features), approximate="tanh")
        classifiers = rearrange(
            self.classifier(self.norm(vision)), "b (h w) c -> b c h w", h=self.grid[0]
        )
        classifiers = F.interpolate(
            classifiers, size=pixel_features.shape[-2:], mode="bilinear", align_corners=False
        )
        weights, offset = classifiers[:, :-1], classifiers[:, -1]
        return (weights * pixels).sum(dim=1) + offset
