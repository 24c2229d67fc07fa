"""Transformer blocks: a mixer and an MLP, each with its norm before and its residual around."""

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from dualwave.models.mixers import MultiHeadAttention, SpectralMixer


class Mlp(nn.Module):
    """Two linear layers with a GELU between them.

    Args:
        width: channels in and out.
        hidden_width: channels between.
    """

    def __init__(self, width: int, hidden_width: int):
        super().__init__()
        self.expand = nn.Linear(width, hidden_width)
        self.contract = nn.Linear(hidden_width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, N, width) to (B, N, width)."""
        return self.contract(F.gelu(self.expand(tokens), approximate="tanh"))


class AttentionBlock(GradientCheckpointingLayer):
    """Pre-norm block that mixes by self-attention.

    Args:
        width: channels.
        heads: attention heads.
        mlp_ratio: the MLP's hidden width over `width`.
        eps: epsilon of the norms.
    """

    def __init__(self, width: int, heads: int, mlp_ratio: int, eps: float):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(width, eps=eps)
        self.mixer = MultiHeadAttention(width, heads)
        self.mlp_norm = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, mlp_ratio * width)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, N, width) to (B, N, width); ``mask`` (B, N) bool is True where a token is real."""
        normed = self.mixer_norm(tokens)
        tokens = tokens + self.mixer(normed, normed, mask)
        return tokens + self.mlp(self.mlp_norm(tokens))


class SpectralBlock(GradientCheckpointingLayer):
    """Pre-norm block that mixes by the spectral filter.

    Args:
        width: channels.
        grid: (H, W) of the tokens.
        mlp_ratio: the MLP's hidden width over `width`.
        eps: epsilon of the norms.
    """

    def __init__(self, width: int, grid: tuple[int, int], mlp_ratio: int, eps: float):
        super().__init__()
        self.mixer_norm = nn.LayerNorm(width, eps=eps)
        self.mixer = SpectralMixer(width, grid)
        self.mlp_norm = nn.LayerNorm(width, eps=eps)
        self.mlp = Mlp(width, mlp_ratio * width)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, H * W, width) to (B, H * W, width)."""
        tokens = tokens + self.mixer(self.mixer_norm(tokens))
        return tokens + self.mlp(self.mlp_norm(tokens))
