"""The Triton kernels, interpreted, against the float64 definition: outputs, LSE and gradients."""

import itertools
from typing import Any

import pytest
import torch

from .cases import CU_SEQLENS, OPTIONS
from .oracle import make_problem
from .triton_runs import check

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
SEVERAL_TILES = [(37, 37), (17, 53), (53, 17), (16, 32), (1, 40), (40, 1)]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (5, 11), (11, 5), (1, 1), (1, 6), (6, 1)])
def test_masks_in_one_tile(queries: int, keys: int, name: str) -> None:
    check(make_problem(queries, keys, batch=1, dtype=torch.float32, **OPTIONS[name]))


WIDE_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (20, 3)},
    "left window": {"window": (17, None)},
    "right window": {"window": (None, 9)},
    "causal window": {"causal": True, "window": (2, None)},
    "offsets": {"causal": True, "q_offset": 23},
    "offset of keys": {"window": (5, 5), "k_offset": 19},
    "sees nothing": {"causal": True, "q_offset": 7, "k_offset": 100},
}


@pytest.mark.parametrize("name", WIDE_OPTIONS)
@pytest.mark.parametrize(("queries", "keys"), SEVERAL_TILES)
def test_masks_over_several_tiles(queries: int, keys: int, name: str) -> None:
    check(make_problem(queries, keys, batch=1, dtype=torch.float32, **WIDE_OPTIONS[name]))


@pytest.mark.parametrize("tile", [(16, 32), (32, 16), (64, 16)])
@pytest.mark.parametrize("name", ["causal", "window", "offset of keys"])
def test_tiles_that_are_not_square(name: str, tile: tuple[int, int]) -> None:
    check(make_problem(61, 67, batch=1, dtype=torch.float32, **WIDE_OPTIONS[name]), tile=tile)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["plain", "causal", "window", "offsets"])
def test_dtypes(name: str, dtype: torch.dtype) -> None:
    check(make_problem(33, 17, size=16, dtype=dtype, **WIDE_OPTIONS[name]), dtype)


@pytest.mark.parametrize("size", [1, 5, 16, 72, 80, 96, 100, 112, 240, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_head_sizes(dtype: torch.dtype, size: int) -> None:
    shape = (1, 1, 5, 19)
    check(make_problem(5, 19, batch=1, size=size, dtype=dtype, bias_shape=shape), dtype)


@pytest.mark.parametrize("name", ["plain", "causal", "window"])
@pytest.mark.parametrize(("heads", "key_heads"), [(6, 2), (4, 1), (3, 3)])
def test_grouped_heads(heads: int, key_heads: int, name: str) -> None:
    problem = make_problem(
        18, 18, heads=heads, key_heads=key_heads, dtype=torch.float32, **WIDE_OPTIONS[name]
    )
    check(problem)


@pytest.mark.parametrize("name", ["plain", "causal window"])
@pytest.mark.parametrize("full", list(itertools.product((False, True), repeat=4)))
def test_bias_broadcast_over_any_dimension(full: tuple[bool, ...], name: str) -> None:
    shape = tuple(n if is_full else 1 for n, is_full in zip((2, 4, 5, 19), full, strict=True))
    problem = make_problem(
        5, 19, heads=4, key_heads=2, bias_shape=shape, dtype=torch.float32, **WIDE_OPTIONS[name]
    )
    check(problem)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_bias_of_minus_infinity_hides_keys(dtype: torch.dtype) -> None:
    problem = make_problem(17, 35, bias_shape=(2, 1, 1, 35), dtype=dtype)
    assert problem.bias is not None
    problem.bias[0, ..., 5:] = -torch.inf
    problem.bias[1] = -torch.inf
    results = check(problem, dtype)
    assert bool(torch.isneginf(results["lse"][1]).all())
    assert bool((results["out"][1] == 0).all())
    for name in ("dq", "dk", "dv", "dbias"):
        assert bool((results[name][1] == 0).all()), name


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_packed_sequences(name: str, with_bias: bool) -> None:
    """With two rows behind the last sequence."""
    packing = {"cu_seqlens_q": CU_SEQLENS, "cu_seqlens_k": torch.tensor([0, 2, 2, 7, 9])}
    shape = (1, 1, 13, 10) if with_bias else None
    options = {**packing, **OPTIONS[name]}
    check(make_problem(13, 10, batch=1, bias_shape=shape, dtype=torch.float32, **options))


@pytest.mark.parametrize("name", ["plain", "causal", "window"])
@pytest.mark.parametrize("with_bias", [False, True])
def test_packed_sequences_of_several_tiles(name: str, with_bias: bool) -> None:
    packing = {
        "cu_seqlens_q": torch.tensor([0, 37, 37, 55, 56]),
        "cu_seqlens_k": torch.tensor([0, 17, 20, 20, 55]),
    }
    shape = (1, 2, 56, 55) if with_bias else None
    problem = make_problem(
        56, 55, batch=1, bias_shape=shape, dtype=torch.float32, **packing, **WIDE_OPTIONS[name]
    )
    check(problem, max_seqlen_q=37, max_seqlen_k=35)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("begins", [(0, 0), (2, 5), (4, 4), (9, 0)])
def test_parts_of_a_packed_row(begins: tuple[int, int], causal: bool) -> None:
    options = {"causal": causal, "q_offset": begins[0], "k_offset": begins[1]}
    packing = {"cu_seqlens_q": CU_SEQLENS, "cu_seqlens_k": CU_SEQLENS}
    check(make_problem(4, 6, batch=1, dtype=torch.float32, **packing, **options))


@pytest.mark.parametrize("shape", [(0, 5, 5), (2, 0, 5), (2, 5, 0), (2, 0, 0)])
@pytest.mark.parametrize("name", ["plain", "causal", "window"])
def test_nothing_at_all(shape: tuple[int, int, int], name: str) -> None:
    batch, queries, keys = shape
    bias = (1, 2, queries, keys)
    options = {"batch": batch, "bias_shape": bias, "dtype": torch.float32, **OPTIONS[name]}
    check(make_problem(queries, keys, **options))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_everything_together(dtype: torch.dtype) -> None:
    problem = make_problem(
        40,
        50,
        batch=1,
        heads=4,
        key_heads=2,
        size=20,
        bias_shape=(1, 4, 40, 50),
        dtype=dtype,
        causal=True,
        window=(11, None),
        cu_seqlens_q=torch.tensor([0, 19, 19, 40]),
        cu_seqlens_k=torch.tensor([0, 31, 32, 50]),
    )
    check(problem, dtype)


@pytest.mark.parametrize("factor", [1e-3, 30.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_logits_from_tiny_to_thousands(dtype: torch.dtype, factor: float) -> None:
    check(make_problem(19, 33, scale_of_inputs=factor, dtype=dtype), dtype)
