"""What the one-kernel forms of both layouts plan alike: one launch forward, one backward."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from dualwave.kernels.launch import Launch
from dualwave.kernels.spectral.plans import BackwardPlan, Call, ForwardPlan
from dualwave.kernels.targets import Target


class LaunchConfiguration(Protocol):
    """What every configuration says."""

    @property
    def num_warps(self) -> int:
        """Warps a program."""

    @property
    def num_stages(self) -> int:
        """Depth of the software pipeline."""


ConfigurationT = TypeVar("ConfigurationT", bound=LaunchConfiguration)


@dataclass(frozen=True)
class OneKernelForm(Generic[ConfigurationT]):
    """A kernel that reads x once and writes y once, and one that reads x and dy and writes dx.

    Attributes:
        forward_kernel: the kernel of the forward pass.
        backward_kernel: the kernel of the backward pass.
        forward_configuration: from (H, W, precision, target); None where the kernel does not fit.
        backward_configuration: likewise.
        programs: how many programs a call takes.
        own_arguments: the arguments that this layout's kernels have beside the shared ones.
        empty_bias_parts: the parts of the bias's gradient, from a call and the rows that they keep
            (H, or 1 where the kernel sums over them).
    """

    forward_kernel: Any
    backward_kernel: Any
    forward_configuration: Callable[[int, int, str, Target], ConfigurationT | None]
    backward_configuration: Callable[[int, int, str, Target], ConfigurationT | None]
    programs: Callable[[Call, ConfigurationT], int]
    own_arguments: Callable[[Call, ConfigurationT], dict[str, Any]]
    empty_bias_parts: Callable[[Call, int], Tensor]

    def fits_forward(self, call: Call) -> bool:
        """Whether one kernel serves the forward pass of this call."""
        return self._configuration(call, self.forward_configuration) is not None

    def fits_backward(self, call: Call) -> bool:
        """Whether one kernel serves the backward pass of this call."""
        return self._configuration(call, self.backward_configuration) is not None

    def plan_forward(self, call: Call) -> ForwardPlan:
        """The launch of the forward pass of a call that fits."""
        configuration = self._configuration(call, self.forward_configuration)
        assert configuration is not None
        y = torch.empty_like(call.x)
        arguments = {"y": y, **_strides("y", y)}
        launch = self._launch(self.forward_kernel, call, configuration, arguments)
        return ForwardPlan([launch], y)

    def plan_backward(
        self, call: Call, grad_out: Tensor, wanted: tuple[bool, bool, bool]
    ) -> BackwardPlan:
        """The launch of the backward pass of a call that fits.

        Args:
            call: the forward call.
            grad_out: (B, C, H, W), any strides.
            wanted: whether the gradients of x, bias and temperature are needed.
        """
        configuration = self._configuration(call, self.backward_configuration)
        assert configuration is not None
        grad_x = torch.empty_like(call.x) if wanted[0] else None
        bias_parts = temperature_parts = None
        sums_over_rows = False
        if wanted[1] and call.bias is not None:
            sums_over_rows = call.bias.shape[2] == 1
            bias_parts = self.empty_bias_parts(call, 1 if sums_over_rows else call.x.shape[2])
        if wanted[2] and call.temperature is not None:
            temperature_parts = torch.empty(
                self.programs(call, configuration), dtype=torch.float32, device=call.x.device
            )
        arguments = {
            "grad_out": grad_out,
            **_strides("grad_out", grad_out),
            "grad_x": grad_x,
            **_strides("grad_x", grad_x),
            "grad_bias_parts": bias_parts,
            **_strides("parts", bias_parts, "bchk"),
            "grad_temperature_parts": temperature_parts,
            "WANTS_X_GRADIENT": grad_x is not None,
            "WANTS_BIAS_GRADIENT": bias_parts is not None,
            "SUMS_BIAS_OVER_ROWS": sums_over_rows,
            "WANTS_TEMPERATURE_GRADIENT": temperature_parts is not None,
        }
        launch = self._launch(self.backward_kernel, call, configuration, arguments)
        return BackwardPlan([launch], grad_x, bias_parts, temperature_parts)

    def _configuration(
        self, call: Call, configure: Callable[[int, int, str, Target], ConfigurationT | None]
    ) -> ConfigurationT | None:
        height, width = call.x.shape[2:]
        return configure(height, width, call.precision, call.target)

    def _launch(
        self, kernel: Any, call: Call, configuration: ConfigurationT, arguments: dict[str, Any]
    ) -> Launch:
        """A launch with its own arguments and those that forward and backward take alike."""
        channels, height, width = call.x.shape[1:]
        arguments = {
            "x": call.x,
            **_strides("x", call.x),
            "bias": call.bias,
            **_strides("bias", call.bias, "bchk"),
            "temperature": call.temperature,
            "temperature_value": call.temperature_value,
            "channels": channels,
            "HEIGHT": height,
            "WIDTH": width,
            "HAS_BIAS": call.bias is not None,
            "HAS_TEMPERATURE": call.temperature is not None,
            "PRECISION": call.precision,
            **self.own_arguments(call, configuration),
            **arguments,
        }
        grid = (self.programs(call, configuration),)
        return Launch(kernel, grid, arguments, configuration.num_warps, configuration.num_stages)


def _strides(name: str, tensor: Tensor | None, dimensions: str = "bchw") -> dict[str, int]:
    """Strides by the kernels' names for them; 0 along a dimension of size 1, which broadcasts."""
    sizes = (1,) * 4 if tensor is None else tensor.shape
    strides = (0,) * 4 if tensor is None else tensor.stride()
    return {
        f"{name}_stride_{dimension}": stride if size > 1 else 0
        for dimension, size, stride in zip(dimensions, sizes, strides, strict=True)
    }
