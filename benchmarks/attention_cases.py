"""What the attention benchmark computes, by each side."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dualwave import blockwise_attention
from dualwave.kernels.attention.reference import blockwise_attention_reference, visible_pairs

Inputs = tuple[Tensor, Tensor, Tensor, Tensor]
Operation = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """Queries, keys and values (batch, length, heads, size), each an attention to itself.

    Attributes:
        batch: B.
        length: S.
        heads: H.
        size: D.
        causal: no key after the query.
        window: keys before and after the query, or None.
    """

    batch: int
    length: int
    heads: int
    size: int
    causal: bool = False
    window: tuple[int, int] | None = None

    def __str__(self) -> str:
        what = "causal" if self.causal else "full"
        if self.window is not None:
            what = f"window {self.window[0]} + 1 + {self.window[1]}"
        return f"B {self.batch}, S {self.length}, H {self.heads}, D {self.size}, {what}"

    @property
    def floating_point_operations(self) -> int:
        """Of the forward pass, by the field's convention: 4 B H S^2 D, half if causal."""
        pairs = self.length * self.length
        if self.causal:
            pairs //= 2
        if self.window is not None:
            pairs = int(_visible(self).sum())
        return 4 * self.batch * self.heads * pairs * self.size

    def inputs(
        self, dtype: torch.dtype, device: str = "cpu", *, needs_gradient: bool = True
    ) -> Inputs:
        """q, k, v as views of one projection, and the gradient of the output."""
        generator = torch.Generator(device).manual_seed(0)
        shape = (self.batch, self.length, 4, self.heads, self.size)
        values = torch.randn(shape, generator=generator, device=device).to(dtype)
        *qkv, grad_out = values.unbind(2)
        q, k, v = (tensor.requires_grad_(needs_gradient) for tensor in qkv)
        return q, k, v, grad_out.contiguous()

    def ours(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The public function."""
        out = blockwise_attention(q, k, v, causal=self.causal, window=self.window)
        assert isinstance(out, Tensor)
        return out

    def torch_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """scaled_dot_product_attention, with a mask where it has no argument for it."""
        mask = None if self.window is None else _visible(self).to(q.device)
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        return out.transpose(1, 2)

    def flex_attention(self, compiled: Callable[..., Any]) -> Operation:
        """FlexAttention, compiled, with its mask of blocks made beforehand."""
        from torch.nn.attention.flex_attention import create_block_mask

        def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            if self.window is not None:
                ahead = key - query
                return (ahead >= -self.window[0]) & (ahead <= self.window[1])
            return query >= key

        @lru_cache
        def mask_on(device: torch.device) -> Any:
            if not self.causal and self.window is None:
                return None
            return create_block_mask(
                visible, None, None, self.length, self.length, device=str(device)
            )

        def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
            return compiled(q, k, v, block_mask=mask_on(q.device)).transpose(1, 2)

        return run

    def definition(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Plain PyTorch operations, storing every logit."""
        return blockwise_attention_reference(q, k, v, causal=self.causal, window=self.window)[0]


@lru_cache
def _visible(case: Case) -> Tensor:
    return visible_pairs(case.length, case.length, case.causal, case.window, None, None, None, None)


def results_of(operation: Operation, inputs: Inputs) -> list[Tensor]:
    """The output and the gradients of q, k and v."""
    q, k, v, grad_out = inputs
    out = operation(q, k, v)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), grad_out.to(out.dtype))]


def check(case: Case, operation: Operation, name: str, dtype: torch.dtype, device: str) -> None:
    """Output and gradients may err at most twice as much as plain PyTorch's, plus four eps.

    Raises:
        SystemExit: they err more: nothing is timed then.
    """
    inputs = case.inputs(dtype, device)
    exact_inputs = tuple(t.detach().double().requires_grad_() for t in inputs)
    ours = results_of(operation, inputs)
    plain = results_of(case.definition, inputs)
    exact = results_of(case.definition, exact_inputs)  # type: ignore[arg-type]
    for what, value, usual, right in zip(
        ("out", "dq", "dk", "dv"), ours, plain, exact, strict=True
    ):
        eps = torch.finfo(dtype).eps
        budget = 2 * (usual - right).abs().max() + 4 * eps * right.abs().max()
        error = (value - right).abs().max()
        if not error <= budget:
            raise SystemExit(f"{case}: {what} of {name} is wrong by {error:.3g}; nothing is timed.")
