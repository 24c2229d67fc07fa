"""Compile each attention kernel with candidate tiles; print what it takes. Usage: tune.py target size precision kernel variant tiles..."""

import sys, json, itertools
from concurrent.futures import ProcessPoolExecutor
import torch, triton
from unittest import mock
from dualwave.kernels.attention import planning, compile_cases as cc
from dualwave.kernels.attention.configurations import Tile
from dualwave.kernels.compile_gate import specialise
from dualwave.kernels.targets import TARGETS

T = {t.name: t for t in TARGETS}


def job(a):
    target, size, prec, kind, variant, tile = a
    t = T[target]
    f = lambda *_: Tile(*tile)
    v = next(x for x in cc._VARIANTS if x.name == variant)
    names = ("forward_tile", "grad_query_tile", "grad_key_value_tile", "grad_bias_tile")
    with mock.patch.multiple(planning, **dict.fromkeys(names, f)):
        launches = [c.launch for c in cc._cases(size, v, prec, t)]
    l = next(x for x in launches if kind in x.kernel.fn.__name__)
    try:
        r = specialise(l, t).compile()
        return a, (
            r.registers,
            r.spill_bytes,
            r.shared_bytes // 1024,
            r.tensor_core,
            r.tensor_memory_columns,
        )
    except Exception as e:
        return a, ("ERR", str(e).splitlines()[-1][:80] if str(e) else repr(e)[:80])


if __name__ == "__main__":
    jobs = json.load(sys.stdin)
    with ProcessPoolExecutor(2) as ex:
        for a, r in ex.map(job, [tuple(j[:5]) + (tuple(j[5]),) for j in jobs]):
            print(*a, r, flush=True)
