"""What mixes tokens inside a block: attention, or the spectral filter."""

import torch
from einops import rearrange
from torch import Tensor, nn

from dualwave.kernels.attention import blockwise_attention
from dualwave.kernels.spectral import spectral_attention


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention, to itself or to another stream.

    Args:
        width: channels of the queries and of the output.
        heads: number of heads; divides `width`.
        context_width: channels of the stream that keys and values come from; `width` if None.
    """

    def __init__(self, width: int, heads: int, context_width: int | None = None):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(context_width or width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(self, tokens: Tensor, context: Tensor, context_mask: Tensor | None) -> Tensor:
        """Mix.

        Args:
            tokens: (B, N, width), the queries.
            context: (B, M, context_width), where keys and values come from; `tokens` for
                self-attention.
            context_mask: (B, M) bool, True where a token may be attended to, or None.

        Returns:
            (B, N, width).
        """
        query = rearrange(self.query(tokens), "b n (h d) -> b n h d", h=self.heads)
        key, value = rearrange(
            self.key_value(context), "b m (two h d) -> two b m h d", two=2, h=self.heads
        )
        bias = None
        if context_mask is not None:
            hidden = torch.zeros(context_mask.shape, device=context_mask.device)
            bias = hidden.masked_fill(~context_mask, -torch.inf)[:, None, None, :]
        mixed = blockwise_attention(query, key, value, bias=bias)
        return self.output(rearrange(mixed, "b n h d -> b n (h d)"))


class SpectralMixer(nn.Module):
    """Spectral-power softmax attention with what makes it trainable around it.

    The bare operation has no parameters, shrinks its input and prefers the constant frequency as
    soon as the mean is not zero. So the mean over tokens is taken out before it and comes back
    with a learned weight, and the temperature and a gain per channel are learned. The gain starts
    at the number of frequencies a row has: a flat filter is then the identity.

    Args:
        width: channels.
        grid: (H, W) of the tokens.
    """

    def __init__(self, width: int, grid: tuple[int, int]):
        super().__init__()
        self.grid = grid
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.gain = nn.Parameter(torch.empty(width))
        self.mean_gain = nn.Parameter(torch.empty(width))

    def forward(
        self, tokens: Tensor, bias: Tensor | None = None, extra_gain: Tensor | None = None
    ) -> Tensor:
        """Filter.

        Args:
            tokens: (B, H * W, width).
            bias: added to the filter's logits, broadcastable to (B, H, W // 2 + 1, width).
            extra_gain: added to the learned gain's factor of one, broadcastable to
                (B, H * W, width).

        Returns:
            (B, H * W, width).
        """
        values = self.value(tokens)
        mean = values.mean(dim=1, keepdim=True)
        filtered = spectral_attention(
            values - mean, grid=self.grid, temperature=self.log_temperature.exp(), bias=bias
        )
        mixed = filtered * self.gain + mean * self.mean_gain
        if extra_gain is not None:
            mixed = mixed * (1 + extra_gain)
        return self.output(mixed)
