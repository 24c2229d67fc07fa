"""Compile a launch for a target, without having one, and say what the compiler made of it.

A kernel is specialised exactly as Triton specialises it in a real call: by the types, ones and
multiples of 16 among the launch's arguments. The numbers come from the compiler itself: from ptxas'
own log, and from the metadata in the assembly for AMD.
"""

import contextlib
import hashlib
import importlib
import io
import re
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, native_specialize_impl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.cache import get_cache_key
from triton.runtime.jit import JITFunction

from dualwave.kernels.launch import Launch
from dualwave.kernels.targets import Target

_BYTES_OF_A_VGPR_LANE = 4


@dataclass(frozen=True)
class CompileReport:
    """What the compiler made of one specialisation of a kernel.

    Attributes:
        registers: of a thread; on AMD the vector registers of a lane.
        spill_bytes: of a thread: ptxas' spill stores and spill loads together; on AMD four bytes
            for each vector register that was spilled.
        sgpr_spills: scalar registers that were spilled (AMD; into vector registers, so cheap).
        shared_bytes: shared memory of a program.
        tensor_memory_columns: tensor memory of a program (sm_100). Above the limit Triton leaves
            the code out and refuses to launch.
        tensor_core: the best matrix instruction in the code: ``"wgmma"``, ``"tcgen05"``, ``"mma"``,
            ``"mfma"`` or None.
        product_rows: rows of the largest matrix product in the kernel; 0 without products.
    """

    registers: int
    spill_bytes: int
    sgpr_spills: int
    shared_bytes: int
    tensor_memory_columns: int
    tensor_core: str | None
    product_rows: int


@dataclass(frozen=True)
class Specialisation:
    """A kernel with all that decides about its code; plain values, so another process can take it.

    Attributes:
        module: that defines the kernel.
        name: of the kernel in its module.
        types: of the arguments by name, ``"constexpr"`` for constants.
        constants: values of the constants by name.
        hints: what is known about an argument, by position, as Triton's back end writes it.
        num_warps: warps a program.
        num_stages: depth of the software pipeline.
        target: what to compile for.
    """

    module: str
    name: str
    types: dict[str, str]
    constants: dict[str, Any]
    hints: dict[int, str]
    num_warps: int
    num_stages: int
    target: Target

    @property
    def key(self) -> str:
        """A hash that changes with anything that could change the report.

        The kernel's source and that of all functions it calls, the specialisation, the options,
        Triton's version and settings, and this file.
        """
        backend = _backend(self.target)
        options = backend.parse_options(self._options)
        environment = get_cache_invalidating_env_vars()
        compiler_key = get_cache_key(self._source, backend, options, env_vars=environment)
        return hashlib.sha256(f"{_own_source()}-{compiler_key}".encode()).hexdigest()

    def compile(self) -> CompileReport:
        """Compile anew, leaving Triton's own cache alone."""
        target = GPUTarget(self.target.backend, self.target.architecture, self.target.warp_size)
        log = io.StringIO()
        with contextlib.ExitStack() as stack:
            for settings in (knobs.cache, knobs.compilation, knobs.nvidia):
                stack.enter_context(settings.scope())
            knobs.cache.dir = stack.enter_context(tempfile.TemporaryDirectory())
            knobs.compilation.always_compile = True
            knobs.nvidia.dump_ptxas_log = True
            stack.enter_context(contextlib.redirect_stdout(log))
            compiled = triton.compile(self._source, target=target, options=self._options)
        shared_bytes = compiled.metadata.shared
        tensor_memory_columns = getattr(compiled.metadata, "tmem_size", 0) or 0
        rows = _product_rows(compiled.asm["ttir"])
        if self.target.backend == "cuda":
            return _nvidia_report(
                log.getvalue(), compiled.asm["ptx"], shared_bytes, tensor_memory_columns, rows
            )
        return _amd_report(compiled.asm["amdgcn"], shared_bytes, rows)

    @property
    def _options(self) -> dict[str, int]:
        return {"num_warps": self.num_warps, "num_stages": self.num_stages}

    @property
    def _source(self) -> ASTSource:
        kernel = getattr(importlib.import_module(self.module), self.name)
        backend = _backend(self.target)
        attributes = {(place,): backend.parse_attr(hint) for place, hint in self.hints.items()}
        return ASTSource(kernel, self.types, self.constants, attributes)


def specialise(launch: Launch, target: Target) -> Specialisation:
    """What Triton would compile when this launch runs on the target.

    Raises:
        ValueError: the kernel was made under TRITON_INTERPRET=1, so there is nothing to compile.
    """
    kernel = launch.kernel
    if not isinstance(kernel, JITFunction):
        raise ValueError(
            "kernels can't be compiled under TRITON_INTERPRET=1: unset it before they are imported."
        )
    assert set(launch.arguments) == set(kernel.arg_names), kernel.__name__
    types, constants, hints = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value = launch.arguments[parameter.name]
        kind, hint = "constexpr", None
        if not parameter.is_constexpr:
            kind, hint = native_specialize_impl(
                type(_backend(target)),
                value,
                parameter.is_const,
                not parameter.do_not_specialize,
                not parameter.do_not_specialize_on_alignment,
            )
        types[parameter.name] = kind
        if kind == "constexpr":
            constants[parameter.name] = value
        elif hint:
            hints[place] = hint
    module, name = kernel.fn.__module__, kernel.fn.__name__
    return Specialisation(
        module, name, types, constants, hints, launch.num_warps, launch.num_stages, target
    )


def compile_launch(launch: Launch, target: Target) -> CompileReport:
    """Compile what a launch would run on a target.

    Raises:
        ValueError: the kernel was made under TRITON_INTERPRET=1, so there is nothing to compile.
    """
    return specialise(launch, target).compile()


@lru_cache
def _backend(target: Target) -> Any:
    return make_backend(GPUTarget(target.backend, target.architecture, target.warp_size))


@lru_cache
def _own_source() -> str:
    return Path(__file__).read_text(encoding="utf-8")


def _nvidia_report(
    log: str, ptx: str, shared_bytes: int, tensor_memory_columns: int, product_rows: int
) -> CompileReport:
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", log)]
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert len(registers) == len(spills) > 0, f"ptxas wrote no report: {log}"
    instructions = {
        "wgmma": r"wgmma\.mma_async",
        "tcgen05": r"tcgen05\.mma",
        "mma": r"\bmma\.sync",
    }
    found = [name for name, pattern in instructions.items() if re.search(pattern, ptx)]
    return CompileReport(
        registers=max(registers),
        spill_bytes=sum(int(stores) + int(loads) for stores, loads in spills),
        sgpr_spills=0,
        shared_bytes=shared_bytes,
        tensor_memory_columns=tensor_memory_columns,
        tensor_core=found[0] if found else None,
        product_rows=product_rows,
    )


def _amd_report(assembly: str, shared_bytes: int, product_rows: int) -> CompileReport:
    def metadata(name: str) -> int:
        values = re.findall(rf"\.{name}:\s*(\d+)", assembly)
        assert values, f"the assembly says nothing about {name}"
        return max(int(value) for value in values)

    return CompileReport(
        registers=metadata("vgpr_count"),
        spill_bytes=metadata("vgpr_spill_count") * _BYTES_OF_A_VGPR_LANE,
        sgpr_spills=metadata("sgpr_spill_count"),
        shared_bytes=shared_bytes,
        tensor_memory_columns=0,
        tensor_core="mfma" if "v_mfma" in assembly else None,
        product_rows=product_rows,
    )


def _product_rows(ttir: str) -> int:
    """Rows M of the largest product ``(M, K) @ (K, N)``; batches of products don't count."""
    results = re.findall(r"\btt\.dot\b.*-> tensor<(\d+)x\d+x[a-z]", ttir)
    return max((int(rows) for rows in results), default=0)
