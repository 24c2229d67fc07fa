"""Runs of the contrastive kernels in Triton's interpreter, everything poisoned and guarded."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch

from dualwave.kernels.contrastive import contrastive_loss, planning
from dualwave.kernels.contrastive.configurations import LABEL_LOSSES, Configuration

from ..guarded_buffers import poisoned_and_guarded
from .oracle import Problem, Results, assert_within_budget, results_of

SMALL = Configuration(16, 16, 16, 16, num_warps=4, num_stages=1)
"""Several tiles each way, and several slices, need no more than some dozens."""


@contextmanager
def configured(configuration: Configuration) -> Iterator[None]:
    """All kernels own tiles of this size."""

    def chosen(*_: Any) -> Configuration:
        return configuration

    with mock.patch.multiple(
        planning,
        forward_configuration=chosen,
        backward_configuration=chosen,
        LABEL_LOSSES=replace(LABEL_LOSSES, block_size=configuration.block_size),
    ):
        yield


def run(
    problem: Problem, dtype: torch.dtype, configuration: Configuration = SMALL, **more: Any
) -> Results:
    """The loss, the LSEs of softmax unless they are given, and all gradients."""
    more.setdefault("return_lse", problem.is_softmax and "lse" not in more)
    with poisoned_and_guarded(), configured(configuration):
        return results_of(contrastive_loss, problem, dtype, implementation="triton", **more)


def check(
    problem: Problem,
    dtype: torch.dtype = torch.float32,
    configuration: Configuration = SMALL,
    *,
    rounded_products: bool = False,
    **more: Any,
) -> Results:
    """Run a problem, and compare with the definition in float64."""
    results = run(problem, dtype, configuration, **more)
    assert_within_budget(results, problem, dtype, rounded_products=rounded_products)
    return results
