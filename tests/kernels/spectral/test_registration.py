"""The operation inside torch: registration, torch.compile, autocast, and what it refuses."""

import subprocess
import sys

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dualwave.kernels.choices import resolve_precision
from dualwave.kernels.spectral import spectral_attention

IMPLEMENTATIONS = ["torch", "triton"]
ALL_WANTED = [True, True, True]


def _canonical_inputs(dtype=torch.float32, batch=2):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 3, 4, 6, generator=generator).to(dtype)
    bias = torch.randn(1, 3, 4, 4, generator=generator)
    return x, bias, torch.tensor(0.5)


def _leaves(batch):
    generator = torch.Generator().manual_seed(batch)
    x = torch.randn(batch, 12, 3, generator=generator)
    bias = torch.randn(batch, 1, 3, 3, generator=generator)
    return [t.requires_grad_() for t in (x, bias, torch.tensor(0.5))]


def _tokens(x, bias, temperature, implementation):
    return spectral_attention(
        x, grid=(3, 4), bias=bias, temperature=temperature, implementation=implementation
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", ["planar", "tokens"])
def test_opcheck_of_both_operations(dtype, layout):
    x, bias, temperature = _canonical_inputs(dtype)
    if layout == "tokens":
        x = x.contiguous(memory_format=torch.channels_last)
    grad_out = torch.randn_like(x)
    forward = torch.ops.dualwave.spectral_forward.default
    backward = torch.ops.dualwave.spectral_backward.default
    torch.library.opcheck(forward, (x, bias, temperature, 1.0, "default"))
    torch.library.opcheck(forward, (x, None, None, 0.5, "ieee"))
    torch.library.opcheck(backward, (grad_out, x, bias, temperature, 1.0, "default", ALL_WANTED))
    torch.library.opcheck(backward, (grad_out, x, None, None, 0.5, "default", [True, False, False]))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_compiles_as_one_graph_for_any_batch_forward_and_backward(implementation):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(_tokens, fullgraph=True, dynamic=True, backend=counter)
    for batch in (7, 5, 9):  # unlike the other sizes, which would be taken for the same symbol
        leaves, again = _leaves(batch), _leaves(batch)
        expected = _tokens(*leaves, implementation)
        result = compiled(*again, implementation)
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        expected.square().sum().backward()
        result.square().sum().backward()
        for leaf, compiled_leaf in zip(leaves, again, strict=True):
            torch.testing.assert_close(compiled_leaf.grad, leaf.grad, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_changes_nothing(implementation, dtype):
    x, bias, temperature = _leaves(2)
    x = x.detach().to(dtype).requires_grad_()
    plain = _tokens(x, bias, temperature, implementation)
    plain_gradients = torch.autograd.grad(plain.sum(), (x, bias, temperature))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = _tokens(x, bias, temperature, implementation)
        gradients = torch.autograd.grad(cast.sum(), (x, bias, temperature))
    assert cast.dtype == dtype
    assert torch.equal(cast, plain)
    for gradient, plain_gradient in zip(gradients, plain_gradients, strict=True):
        assert torch.equal(gradient, plain_gradient)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_second_derivative_is_refused_in_words(implementation):
    x, bias, temperature = _leaves(2)
    y = _tokens(x, bias, temperature, implementation)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_vmap_is_refused_in_words(implementation):
    x = torch.randn(5, 2, 3, 4)
    with pytest.raises(ValueError, match=r"does not go through torch\.vmap"):
        torch.vmap(lambda each: spectral_attention(each, implementation=implementation))(x)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_only_the_inputs_are_saved_for_backward(implementation):
    x, bias, temperature = _leaves(2)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        _tokens(x, bias, temperature, implementation)
    inputs = {t.untyped_storage().data_ptr() for t in (x, bias, temperature)}
    assert len(saved) == 3
    assert {t.untyped_storage().data_ptr() for t in saved} <= inputs


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_same_input_gives_the_same_bits(implementation):
    def run():
        leaves = _leaves(3)
        y = _tokens(*leaves, implementation)
        return [y, *torch.autograd.grad(y.square().sum(), leaves)]

    for first, second in zip(run(), run(), strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", [(0, 12, 3), (2, 12, 0)])
def test_an_empty_input_gives_empty_and_zero_gradients(implementation, shape):
    x = torch.randn(shape, requires_grad=True)
    bias = torch.randn(1, 1, 3, 1, requires_grad=True)
    temperature = torch.tensor(0.5, requires_grad=True)
    y = _tokens(x, bias, temperature, implementation)
    y.sum().backward()
    assert y.shape == shape
    assert x.grad.shape == shape
    assert torch.equal(bias.grad, torch.zeros_like(bias))
    assert temperature.grad == 0


@pytest.mark.parametrize(
    ("setting", "dtype", "expected"),
    [
        ("highest", torch.float32, "tf32x3"),
        ("high", torch.float32, "tf32"),
        ("medium", torch.float32, "tf32"),
        ("highest", torch.bfloat16, "fp16"),
        ("high", torch.float16, "fp16"),
    ],
)
def test_the_default_precision_follows_the_input_and_the_setting(setting, dtype, expected):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        assert (
            resolve_precision("default", torch.empty(1, dtype=dtype), of_16_bits="fp16") == expected
        )
    finally:
        torch.set_float32_matmul_precision(before)


def test_on_amd_float32_defaults_to_ieee_and_tf32x3_is_refused(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert resolve_precision("default", torch.empty(1), of_16_bits="fp16") == "ieee"
    with pytest.raises(ValueError, match="not available on AMD"):
        spectral_attention(torch.zeros(4, 4), implementation="triton", precision="tf32x3")


def test_triton_on_cpu_tensors_needs_the_interpreter(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ValueError, match="needs a CUDA or ROCm tensor"):
        spectral_attention(torch.zeros(4, 4), implementation="triton")


def test_importing_the_operation_does_not_import_triton():
    code = (
        "import sys, torch; from dualwave import spectral_attention; "
        "spectral_attention(torch.zeros(2, 4, 4)); "
        "sys.exit(any(name.startswith('dualwave.kernels.spectral.triton_kernels') "
        "or name == 'triton.language' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("grid", [(4, 11), (5, 40)])
def test_tables_made_under_fake_tensors_do_not_outlive_them(grid):
    """Of the products and of the Fourier form; sizes that no other test uses first."""
    x = torch.randn(2, grid[0] * grid[1], 3)
    with FakeTensorMode():
        spectral_attention(torch.randn(x.shape), grid=grid)
    assert type(spectral_attention(x, grid=grid)) is Tensor


def test_shapes_on_the_meta_device():
    x = torch.empty(2, 3, 6, 12, device="meta", requires_grad=True)
    y = spectral_attention(x)
    y.sum().backward()
    assert y.shape == x.shape == x.grad.shape


@pytest.mark.parametrize("autocast_is_compiled", [True, False])
@pytest.mark.parametrize("layout", ["planar", "tokens"])
def test_autocast_around_and_inside_a_compiled_function(layout, autocast_is_compiled):
    torch._dynamo.reset()
    x, grid = torch.randn(2, 3, 4, 4), None
    if layout == "tokens":
        x, grid = torch.randn(2, 16, 3), (4, 4)

    def loss(leaf):
        return (spectral_attention(leaf, grid=grid) * x).sum()

    def loss_inside(leaf):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(leaf)

    compiled_leaf, leaf = x.clone().requires_grad_(), x.clone().requires_grad_()
    function = loss_inside if autocast_is_compiled else loss
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not autocast_is_compiled):
        compiled(compiled_leaf).backward()
    loss(leaf).backward()
    torch.testing.assert_close(compiled_leaf.grad, leaf.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("layout", ["planar", "tokens"])
def test_compiles_for_changing_grids_with_gradients(layout, dynamic):
    torch._dynamo.reset()

    def loss(leaf, height, width):
        grid = (height, width) if layout == "tokens" else None
        return spectral_attention(leaf, grid=grid).square().sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch, height, width in [(2, 4, 4), (5, 4, 4), (2, 6, 5)]:
        x = torch.randn(batch, 3, height, width)
        if layout == "tokens":
            x = torch.randn(batch, height * width, 3)
        compiled_leaf, leaf = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(compiled_leaf, height, width).backward()
        loss(leaf, height, width).backward()
        torch.testing.assert_close(compiled_leaf.grad, leaf.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_compiles_with_a_bias_for_widths_that_share_a_number_of_frequencies(
    implementation, dynamic
):
    torch._dynamo.reset()

    def filtered(x, bias):
        return spectral_attention(x, bias=bias, implementation=implementation)

    compiled = torch.compile(filtered, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for width in (4, 5, 6, 7):
        x, bias = torch.randn(2, 3, width), torch.randn(3, width // 2 + 1)
        torch.testing.assert_close(compiled(x, bias), filtered(x, bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strict", [True, False])
def test_exports_for_any_batch_of_tokens(strict):
    class Filter(torch.nn.Module):
        def forward(self, x):
            return spectral_attention(x, grid=(4, 4))

    any_batch = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    exported = torch.export.export(
        Filter(), (torch.randn(4, 16, 8),), dynamic_shapes=any_batch, strict=strict
    )
    x = torch.randn(7, 16, 8)
    torch.testing.assert_close(exported.module()(x), spectral_attention(x, grid=(4, 4)))
