"""Where the streams meet."""

from einops import rearrange
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from dualwave.models.blocks import AttentionBlock, Mlp
from dualwave.models.configuration import DualStreamConfig
from dualwave.models.mixers import MultiHeadAttention, SpectralMixer
from dualwave.models.towers import masked_mean


class SpectralFusionBlock(GradientCheckpointingLayer):
    """The text steers the vision stream's spectral filter, then reads what passed it.

    The mean of the text gives, by two linear maps, a bias on the filter's logits (one value a
    frequency and channel) and a gain on its output (one a channel). The text stream then attends
    to the filtered vision tokens, so that the next block is steered by what was found.

    Args:
        config: the model's configuration.
        mixer: "spectral", or "attention" for a self-attention block of the vision stream between
            filter and text.
        updates_text: False for the last block, after which nobody reads the text stream.
    """

    def __init__(self, config: DualStreamConfig, mixer: str, *, updates_text: bool):
        super().__init__()
        height, width = config.grid
        eps = config.layer_norm_eps
        self.frequencies = width // 2 + 1
        self.text_summary_norm = nn.LayerNorm(config.text_width, eps=eps)
        self.bias_from_text = nn.Linear(config.text_width, self.frequencies * config.vision_width)
        self.gain_from_text = nn.Linear(config.text_width, config.vision_width)
        self.filter_norm = nn.LayerNorm(config.vision_width, eps=eps)
        self.filter = SpectralMixer(config.vision_width, (height, width))
        self.vision_mlp_norm = nn.LayerNorm(config.vision_width, eps=eps)
        self.vision_mlp = Mlp(config.vision_width, config.mlp_ratio * config.vision_width)
        self.vision_block = (
            AttentionBlock(config.vision_width, config.vision_heads, config.mlp_ratio, eps)
            if mixer == "attention"
            else None
        )
        self.updates_text = updates_text
        if not updates_text:
            return
        self.query_norm = nn.LayerNorm(config.text_width, eps=eps)
        self.context_norm = nn.LayerNorm(config.vision_width, eps=eps)
        self.text_reads_vision = MultiHeadAttention(
            config.text_width, config.text_heads, context_width=config.vision_width
        )
        self.text_mlp_norm = nn.LayerNorm(config.text_width, eps=eps)
        self.text_mlp = Mlp(config.text_width, config.mlp_ratio * config.text_width)

    def forward(self, vision: Tensor, text: Tensor, text_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Fuse.

        Args:
            vision: (B, N, vision_width).
            text: (B, L, text_width).
            text_mask: (B, L) bool, True where a token is real.

        Returns:
            Both streams in their own shapes.
        """
        summary = self.text_summary_norm(masked_mean(text, text_mask))
        bias = rearrange(self.bias_from_text(summary), "b (k c) -> b 1 k c", k=self.frequencies)
        gain = rearrange(self.gain_from_text(summary), "b c -> b 1 c")
        vision = vision + self.filter(self.filter_norm(vision), bias, gain)
        vision = vision + self.vision_mlp(self.vision_mlp_norm(vision))
        if self.vision_block is not None:
            vision = self.vision_block(vision)
        if not self.updates_text:
            return vision, text
        text = text + self.text_reads_vision(self.query_norm(text), self.context_norm(vision), None)
        text = text + self.text_mlp(self.text_mlp_norm(text))
        return vision, text
