"""The PyTorch forms against the float64 full-complex definition: outputs and all gradients."""

import pytest
import torch
from einops import rearrange

from dualwave.kernels.spectral import pytorch as pytorch_form
from dualwave.kernels.spectral import spectral_attention
from dualwave.kernels.spectral.reference import spectral_attention_reference

GRIDS = [
    (1, 1), (1, 2), (2, 1), (1, 9), (5, 1), (3, 5), (4, 6), (7, 8), (8, 7), (14, 14), (16, 16),
    (17, 31), (1, 64), (37, 2), (32, 32),
]  # fmt: skip


@pytest.fixture(params=["products", "fft"])
def form(request, monkeypatch):
    """Send every grid through one of the two forms."""
    monkeypatch.setattr(pytorch_form, "uses_products", lambda x: request.param == "products")
    return request.param


def _inputs(height, width, mean=0.1, dtype=torch.float64):
    generator = torch.Generator().manual_seed(height * 100 + width)
    x = torch.randn(2, 3, height, width, generator=generator, dtype=torch.float64) + mean
    bias = torch.randn(3, height, width // 2 + 1, generator=generator, dtype=torch.float64)
    grad = torch.randn(2, 3, height, width, generator=generator, dtype=torch.float64)
    temperature = torch.tensor(0.7, dtype=torch.float64)
    return [t.to(dtype).requires_grad_() for t in (x, bias, temperature)], grad.to(dtype)


def _tokens(planar):
    return rearrange(planar, "b c h w -> b (h w) c")


def _token_bias(bias):
    return rearrange(bias, "c h k -> 1 h k c")


def _call(layout, x, bias, temperature):
    if layout == "planar":
        return spectral_attention(x, temperature=temperature, bias=bias)
    height, width = x.shape[-2:]
    y = spectral_attention(
        _tokens(x), grid=(height, width), temperature=temperature, bias=_token_bias(bias)
    )
    return rearrange(y, "b (h w) c -> b c h w", h=height)


@pytest.mark.parametrize("layout", ["planar", "tokens"])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_equals_the_definition_in_float64(form, layout, grid):
    leaves, grad = _inputs(*grid)
    expected = spectral_attention_reference(leaves[0], temperature=leaves[2], bias=leaves[1])
    expected_gradients = torch.autograd.grad(expected, leaves, grad)
    x, bias, temperature = leaves
    result = _call(layout, x, bias, temperature)
    gradients = torch.autograd.grad(result, leaves, grad)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("grid", [(7, 8), (16, 16), (17, 31)], ids=str)
@pytest.mark.parametrize("mean", [0.0, 3.0])
def test_float32_error_is_within_twice_the_plain_chain(form, grid, mean):
    (x, bias, temperature), grad = _inputs(*grid, mean=mean)
    exact = spectral_attention_reference(x, temperature=temperature, bias=bias)
    exact_gradients = torch.autograd.grad(exact, (x, bias, temperature), grad)
    single = [t.detach().float().requires_grad_() for t in (x, bias, temperature)]
    plain = spectral_attention_reference(single[0], temperature=single[2], bias=single[1])
    plain_gradients = torch.autograd.grad(plain, single, grad.float())
    ours = spectral_attention(single[0], temperature=single[2], bias=single[1])
    our_gradients = torch.autograd.grad(ours, single, grad.float())
    eps = torch.finfo(torch.float32).eps
    power = torch.fft.rfft2(x.detach(), norm="ortho").abs().square()
    # A logit is only known to its own rounding; a large one carries that into its softmax.
    logit_rounding = 4 * eps * (temperature.detach() * power).max()
    for our, plain_one, exact_one in zip(
        (ours, *our_gradients), (plain, *plain_gradients), (exact, *exact_gradients), strict=True
    ):
        scale = exact_one.abs().max().clamp(min=1)
        budget = 2 * (plain_one.double() - exact_one).abs().max() + 4 * eps * scale
        budget = budget + logit_rounding * scale
        assert (our.double() - exact_one).abs().max() <= budget


@pytest.mark.parametrize("grid", [(8, 8), (5, 7)], ids=str)
def test_equals_irfft2_of_the_product_on_the_cpu(form, grid):
    (x, _, _), _ = _inputs(*grid)
    spectrum = torch.fft.rfft2(x, norm="ortho")
    weights = torch.softmax(spectrum.abs().square(), dim=-1)
    expected = torch.fft.irfft2(weights * spectrum, s=grid, norm="ortho")
    torch.testing.assert_close(spectral_attention(x), expected, rtol=0, atol=1e-13)


def test_gradcheck(form):
    (x, bias, temperature), _ = _inputs(3, 4)

    def call(x, bias, temperature):
        return spectral_attention(x, temperature=temperature, bias=bias)

    assert torch.autograd.gradcheck(call, (x, bias, temperature))


@pytest.mark.parametrize("kind", ["strided", "expanded"])
def test_grad_out_may_be_strided_or_expanded(form, kind):
    (x, bias, temperature), _ = _inputs(4, 6)
    y = spectral_attention(x, temperature=temperature, bias=bias)
    if kind == "strided":
        grad = torch.randn(6, 4, 3, 2, dtype=torch.float64).permute(3, 2, 1, 0)
    else:
        grad = torch.randn(1, 3, 1, 1, dtype=torch.float64).expand(2, 3, 4, 6)
    expected = torch.autograd.grad(y, x, grad.contiguous(), retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(y, x, grad)[0], expected, rtol=0, atol=1e-15)


def test_non_contiguous_and_expanded_inputs(form):
    base = torch.randn(6, 4, 3, dtype=torch.float64)
    strided = base.permute(2, 1, 0)
    torch.testing.assert_close(
        spectral_attention(strided), spectral_attention(strided.contiguous()), rtol=0, atol=1e-15
    )
    expanded = base[:1].expand(6, 4, 3)
    torch.testing.assert_close(
        spectral_attention(expanded), spectral_attention(expanded.clone()), rtol=0, atol=1e-15
    )


def test_batched_equals_unbatched(form):
    (x, bias, temperature), _ = _inputs(5, 8)
    together = spectral_attention(x, temperature=temperature, bias=bias)
    for b in range(2):
        for c in range(3):
            alone = spectral_attention(x[b, c], temperature=temperature, bias=bias[c])
            torch.testing.assert_close(alone, together[b, c], rtol=0, atol=1e-14)


def test_a_shift_of_the_input_shifts_the_output(form):
    (x, _, _), _ = _inputs(6, 5)
    shifted = spectral_attention(x.roll((2, 3), dims=(-2, -1)))
    expected = spectral_attention(x).roll((2, 3), dims=(-2, -1))
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-13)


def test_a_large_mean_gives_one_hot_rows_and_no_overflow(form):
    x = torch.randn(1, 2, 8, 8, dtype=torch.float32) + 1e4
    y = spectral_attention(x)
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y.mean(), x.mean(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 0, 4, 4)])
def test_an_empty_batch_gives_an_empty_result(form, shape):
    x = torch.zeros(shape, requires_grad=True)
    y = spectral_attention(x)
    y.sum().backward()
    assert y.shape == shape
    assert x.grad.shape == shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_input_is_computed_in_float32(form, dtype):
    x = torch.randn(2, 3, 8, 8).to(dtype)
    y = spectral_attention(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y, spectral_attention(x.float()).to(dtype), rtol=0, atol=0)


def test_autocast_does_not_lower_the_precision(form):
    x = torch.randn(2, 64, 3)
    plain = spectral_attention(x, grid=(8, 8))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = spectral_attention(x, grid=(8, 8))
    assert cast.dtype == torch.float32
    torch.testing.assert_close(cast, plain, rtol=0, atol=0)


def test_tables_made_in_inference_mode_serve_training_later():
    with torch.inference_mode():
        spectral_attention(torch.randn(1, 1, 11, 3))
    x = torch.randn(1, 1, 11, 3, requires_grad=True)
    spectral_attention(x).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x": torch.zeros(2, 2, dtype=torch.int64)}, "floating-point"),
        ({"x": torch.zeros(2, 2, dtype=torch.float8_e4m3fn)}, "16 bits"),
        ({"x": [[1.0]]}, "must be a tensor, not list"),
        ({"x": torch.zeros(4, 4), "bias": 0.5}, "bias must be a tensor, not float"),
        ({"x": torch.zeros(4, 4), "temperature": "1"}, "temperature must be a number"),
        ({"x": torch.zeros(4, 4), "temperature": None}, "temperature must be a number"),
        ({"x": torch.zeros(4, 4), "temperature": torch.ones(1) * 1j}, "a real tensor"),
        ({"x": torch.zeros(4, 4), "temperature": torch.ones(1, device="meta")}, "meta device"),
        ({"x": torch.zeros(2, 9, 4), "grid": 3}, "two integers"),
        ({"x": torch.zeros(2, 8, 4), "grid": (2, 2, 2)}, "two integers"),
        ({"x": torch.zeros(2, 9, 4), "grid": "33"}, "two integers"),
        ({"x": torch.zeros(3)}, r"\(\.\.\., H, W\)"),
        ({"x": torch.zeros(2, 9, 4), "grid": (2, 4)}, r"\(B, 2 \* 4, C\)"),
        ({"x": torch.zeros(2, 8, 4), "grid": (0, 4)}, r"\(B, 0 \* 4, C\)"),
        ({"x": torch.zeros(4, 4), "bias": torch.zeros(4, 4)}, r"broadcastable to \(4, 3\)"),
        ({"x": torch.zeros(4, 4), "temperature": torch.ones(2)}, "one element"),
        ({"x": torch.zeros(4, 4, dtype=torch.float64), "implementation": "triton"}, '"torch"'),
        ({"x": torch.zeros(4, 4), "implementation": "cuda"}, '"triton", "torch"'),
        ({"x": torch.zeros(4, 4), "precision": "bf16"}, "tf32x3"),
        ({"x": torch.zeros(1, 4097)}, "from 1 to 4096"),
        ({"x": torch.zeros(4, 4), "precision": "fp16"}, 'use "ieee"'),
    ],
)
def test_bad_arguments_are_named(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        spectral_attention(**arguments)
