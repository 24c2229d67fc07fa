"""Times on a GPU, and the rates that they are compared with.

A call is timed on the device, captured in a CUDA graph, so that a launch's cost on the host does
not count for anybody. The cache is overwritten before each call.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from roofline import Rates

_CACHE_BYTES = 256 * 2**20
_COPY_BYTES = 2**30
_MATRIX_SIZE = 8192
_WARM_UP_CALLS = 3


def device_seconds(function: Callable[[], object], calls: int = 20) -> float:
    """The median time of a function on the device, from a CUDA graph of one call."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP_CALLS):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return queued_seconds(graph.replay, calls)


def queued_seconds(function: Callable[[], object], calls: int = 20) -> float:
    """The median time between two events around a call; the host's work counts where it is late."""
    cache = torch.empty(_CACHE_BYTES, dtype=torch.int8, device="cuda")
    for _ in range(_WARM_UP_CALLS):
        function()
    events = []
    for _ in range(calls):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cache.zero_()
        start.record()
        function()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) / 1e3


def measure_rates() -> Rates:
    """What a large copy and large matrix products reach on this device."""
    source = torch.empty(_COPY_BYTES, dtype=torch.int8, device="cuda")
    copy = torch.empty_like(source)
    copied = 2 * _COPY_BYTES / queued_seconds(lambda: copy.copy_(source))
    operations = 2 * _MATRIX_SIZE**3
    flops = {}
    for name, dtype, setting in (
        ("fp16", torch.float16, "highest"),
        ("tf32", torch.float32, "high"),
        ("ieee", torch.float32, "highest"),
    ):
        matrix = torch.randn(_MATRIX_SIZE, _MATRIX_SIZE, device="cuda").to(dtype)
        with _matmul_precision(setting):
            flops[name] = operations / queued_seconds(
                partial(torch.matmul, matrix, matrix), calls=10
            )
    return Rates(copied, flops)


@contextmanager
def _matmul_precision(setting: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
