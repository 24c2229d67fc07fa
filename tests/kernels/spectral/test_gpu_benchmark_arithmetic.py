"""The arithmetic of the GPU benchmark: it needs no GPU, so it is tested without one."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime import interpreter

from dualwave.kernels.spectral.planning import plan_backward, plan_forward
from dualwave.kernels.spectral.plans import Call
from dualwave.kernels.targets import SM_80, SM_90, Target

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The multiply-adds of every product that the interpreter runs."""
    counts: list[int] = []
    original = interpreter.InterpreterBuilder.create_dot

    def counting(builder: Any, left: Any, right: Any, *rest: Any) -> Any:
        counts.append(left.data.shape[0] * left.data.shape[1] * right.data.shape[1])
        return original(builder, left, right, *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", counting)
    return counts


SHAPES = [
    ("planar", 5, 6),
    ("planar", 1, 12),
    ("planar", 32, 32),
    ("tokens", 5, 6),
    ("tokens", 1, 12),
    ("tokens", 17, 32),
    ("planar", 2, 96),
    ("planar", 96, 2),
    ("tokens", 68, 3),
    ("planar", 67, 3),
    ("planar", 3, 67),
    pytest.param("planar", 1, 4096, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("layout", "height", "width"), SHAPES)
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=lambda target: target.name)
def test_counted_products_are_those_that_run(
    layout: str, height: int, width: int, target: Target, executed: list[int]
) -> None:
    multiply_adds = import_module("spectral_products").multiply_adds
    x = torch.randn(1, 2, height, width)
    if layout == "tokens":
        x = x.contiguous(memory_format=torch.channels_last)
    call = Call(x, None, None, 1.0, "fp16", target)
    for wanted in [None, (True, False, False)]:
        plan = plan_forward(call) if wanted is None else plan_backward(call, x, wanted)
        executed.clear()
        for launch in plan.launches:
            launch.run()
        assert multiply_adds(plan.launches) == sum(executed) > 0


def test_a_backward_pass_without_the_gradient_of_x_executes_fewer_products(
    executed: list[int],
) -> None:
    multiply_adds = import_module("spectral_products").multiply_adds
    x, temperature = torch.randn(1, 1, 4, 4), torch.tensor(1.0)
    call = Call(x, None, temperature, 1.0, "fp16", SM_90)
    plan = plan_backward(call, x, (False, False, True))
    for launch in plan.launches:
        launch.run()
    assert multiply_adds(plan.launches) == sum(executed)


def test_the_roofline_is_the_slower_of_traffic_and_products() -> None:
    module = import_module("roofline")
    rates = module.Rates(1e12, {"fp16": 1e15, "tf32": 5e14, "ieee": 5e13})
    slow_copy = module.roofline(4_000_000, 1_000, "fp16", rates)
    assert slow_copy.seconds == pytest.approx(4e-6)
    assert slow_copy.limit == "traffic"
    many_products = module.roofline(4_000_000, 5_000_000_000, "tf32", rates)
    assert many_products.seconds == pytest.approx(2e-5)
    assert many_products.limit == "products"
    thrice = module.roofline(4_000_000, 5_000_000_000, "tf32x3", rates)
    assert thrice.products_seconds == pytest.approx(6e-5)
    exact = module.roofline(4_000_000, 5_000_000_000, "ieee", rates)
    assert exact.products_seconds == pytest.approx(2e-4)


def test_the_least_traffic_reads_and_writes_each_tensor_once() -> None:
    module = import_module("roofline")
    assert module.least_traffic(1000, 2, with_backward=False) == 4000
    assert module.least_traffic(1000, 4, with_backward=True) == 20000
