"""What every implementation of blockwise attention is measured against.

The exact answer is the definition in float64. The yardstick for rounding is the same definition in
plain PyTorch operations in the dtype of the inputs. An implementation may err at most twice as
much, plus four eps.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dualwave.kernels.attention.reference import blockwise_attention_reference

Results = dict[str, Tensor]
"""Results and gradients by name: out, lse, dq, dk, dv, and dbias where there is a bias."""


@dataclass(frozen=True)
class Problem:
    """Inputs and gradients of the results in float64, and the options that both functions take."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    grad_out: Tensor
    grad_lse: Tensor
    options: dict[str, Any] = field(default_factory=dict)


def make_problem(
    queries: int,
    keys: int | None = None,
    *,
    batch: int = 2,
    heads: int = 2,
    key_heads: int | None = None,
    size: int = 8,
    bias_shape: tuple[int, ...] | None = None,
    scale_of_inputs: float = 1.0,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Problem:
    """Random inputs, the same for the same sizes, rounded to ``dtype`` but kept in float64.

    ``options`` are arguments of `blockwise_attention`: causal, window, cu_seqlens_q and so on.
    A bias is rounded to float32 for 16-bit dtypes.
    """
    generator = torch.Generator().manual_seed(queries * 10_007 + (keys or queries) * 101 + size)

    def normal(*shape: int, factor: float = 1.0, to: torch.dtype = dtype) -> Tensor:
        values = torch.randn(*shape, generator=generator, dtype=torch.float64) * factor
        return values.to(to).double()

    keys = queries if keys is None else keys
    key_shape = (batch, keys, key_heads or heads, size)
    bias = None
    if bias_shape is not None:
        bias = normal(*bias_shape, to=torch.float64 if dtype == torch.float64 else torch.float32)
    return Problem(
        normal(batch, queries, heads, size, factor=scale_of_inputs),
        normal(*key_shape, factor=scale_of_inputs),
        normal(*key_shape),
        bias,
        normal(batch, queries, heads, size),
        normal(
            batch, heads, queries, to=torch.float64 if dtype == torch.float64 else torch.float32
        ),
        options,
    )


def results_of(
    function: Callable[..., tuple[Tensor, Tensor]],
    problem: Problem,
    dtype: torch.dtype,
    *,
    with_lse: bool = True,
    **more: Any,
) -> Results:
    """Run ``function(q, k, v, bias=..., **options, **more) -> (out, lse)`` forward and backward.

    A row that sees nothing has an LSE of -inf, whose gradient is left out of the sum.
    """
    leaves = [t.to(dtype).requires_grad_() for t in (problem.q, problem.k, problem.v)]
    names = ["dq", "dk", "dv"]
    if problem.bias is not None:
        small = dtype if dtype == torch.float64 else torch.float32
        leaves.append(problem.bias.to(small).requires_grad_())
        more["bias"] = leaves[3]
        names.append("dbias")
    out, lse = function(*leaves[:3], **problem.options, **more)
    outputs, grads = [out], [problem.grad_out.to(out.dtype)]
    if with_lse:
        outputs.append(lse)
        grads.append(problem.grad_lse.to(lse.dtype).masked_fill(torch.isneginf(lse), 0.0))
    found = torch.autograd.grad(outputs, leaves, grads, allow_unused=True)
    found = [
        torch.zeros_like(leaf) if grad is None else grad
        for leaf, grad in zip(leaves, found, strict=True)
    ]
    results = dict(zip(names, found, strict=True))
    return {"out": out.detach(), "lse": lse.detach(), **results}


def exact_results(problem: Problem, *, with_lse: bool = True) -> Results:
    """The definition in float64."""
    return results_of(blockwise_attention_reference, problem, torch.float64, with_lse=with_lse)


def plain_results(problem: Problem, dtype: torch.dtype, *, with_lse: bool = True) -> Results:
    """The definition in plain PyTorch operations in ``dtype``."""
    return results_of(blockwise_attention_reference, problem, dtype, with_lse=with_lse)


def assert_within_budget(
    ours: Results,
    problem: Problem,
    dtype: torch.dtype,
    *,
    with_lse: bool = True,
    rounded_products: bool = False,
) -> None:
    """Compare with the exact answer, in the largest error of each result.

    The budget of a result is twice plain PyTorch's error plus 4 eps times the result's scale: its
    largest absolute value, or `uncancelled_scales` if that is more. eps is that of the result's
    dtype, or 2^-10 if that is more and ``rounded_products`` (tf32 operands, 11 significant bits).
    """
    exact = exact_results(problem, with_lse=with_lse)
    plain = plain_results(problem, dtype, with_lse=with_lse)
    scales = uncancelled_scales(problem, with_lse=with_lse)
    for name, value in ours.items():
        assert value.shape == exact[name].shape, name
        nothing = torch.isneginf(exact[name])
        assert torch.equal(torch.isneginf(value), nothing), name
        error, plain_error, size = (
            _largest(t.double().masked_fill(nothing, 0.0))
            for t in (
                value.double() - exact[name],
                plain[name].double() - exact[name],
                exact[name],
            )
        )
        eps = max(torch.finfo(value.dtype).eps, 2.0**-10 if rounded_products else 0.0)
        budget = 2 * plain_error + 4 * eps * max(size, scales.get(name, 0.0))
        if dtype == torch.float64:  # where plain PyTorch is the exact answer itself
            budget = 1e-12 * max(size, 1.0)
        assert error <= budget, f"{name}: error {error:.3g} over the budget of {budget:.3g}"


def uncancelled_scales(problem: Problem, *, with_lse: bool) -> dict[str, float]:
    """How large the gradients of q, k and bias are expected to be if nothing cancels.

    The gradient of a logit is its weight times (gradient of the weight - their weighted mean), and
    rounding errors are as large as these two, also where their difference is 0: under a query that
    sees one key, for which plain PyTorch subtracts a number from itself. Terms are taken as
    independent: a sum is as large as the root of the sum of their squares.
    """
    options = {name: value for name, value in problem.options.items() if name != "scale"}
    scale = problem.options.get("scale", problem.q.shape[-1] ** -0.5)
    group = problem.q.shape[2] // problem.k.shape[2]
    # As values, keys' places give the weights.
    places = torch.eye(problem.k.shape[1], dtype=torch.float64)[None, :, None]
    shape = (*problem.k.shape[:3], problem.k.shape[1])
    weights, _ = blockwise_attention_reference(
        problem.q, problem.k, places.expand(shape), bias=problem.bias, scale=scale, **options
    )
    weights = weights.permute(0, 2, 1, 3)
    keys, values = (t.repeat_interleave(group, dim=2) for t in (problem.k, problem.v))
    out = torch.einsum("bhij,bjhd->bihd", weights, values)
    grad_squares = problem.grad_out.square()
    squares = torch.einsum("bihd,bjhd->bhij", grad_squares, values.square())
    squares = squares + torch.einsum("bihd,bihd->bhi", grad_squares, out.square()).unsqueeze(-1)
    if with_lse:
        squares = squares + problem.grad_lse.square().unsqueeze(-1)
    squares = weights.square() * squares
    dq = torch.einsum("bhij,bjhd->bihd", squares, keys.square()).sqrt() * scale
    dk = torch.einsum("bhij,bihd->bjhd", squares, problem.q.square())
    dk = dk.unflatten(2, (-1, group)).sum(3).sqrt() * scale
    scales = {"dq": _largest(dq), "dk": _largest(dk)}
    if problem.bias is not None:
        scales["dbias"] = _largest(squares.sum_to_size(problem.bias.shape).sqrt())
    return scales


def _largest(values: Tensor) -> float:
    return float(values.detach().abs().max()) if values.numel() > 0 else 0.0
