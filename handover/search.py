"""Find tiles. usage: search.py out.json"""

import sys, json, os

sys.path.insert(0, "/tmp")
from concurrent.futures import ThreadPoolExecutor, ProcessPoolExecutor
from tune import job, T
from dualwave.kernels.compile_gate_judgement import expected_instruction

CAND = {
    "forward": {
        64: [
            (128, 128, 8, 3),
            (128, 64, 8, 3),
            (128, 64, 4, 3),
            (64, 64, 4, 3),
            (64, 64, 4, 2),
            (64, 32, 4, 2),
            (32, 32, 4, 2),
        ],
        128: [
            (128, 128, 8, 2),
            (128, 64, 8, 3),
            (128, 64, 8, 2),
            (64, 64, 4, 2),
            (64, 64, 8, 2),
            (64, 32, 4, 2),
            (64, 32, 4, 1),
            (32, 32, 4, 1),
        ],
        256: [
            (128, 64, 8, 2),
            (64, 64, 8, 2),
            (128, 32, 8, 2),
            (64, 32, 8, 2),
            (64, 32, 4, 2),
            (64, 32, 8, 1),
            (64, 16, 8, 1),
            (32, 32, 4, 1),
            (32, 16, 4, 1),
            (16, 16, 4, 1),
        ],
    },
    "grad_query": {
        64: [(128, 64, 8, 2), (64, 64, 4, 2), (64, 64, 8, 2), (64, 32, 4, 2), (32, 32, 4, 1)],
        128: [
            (128, 64, 8, 2),
            (64, 64, 4, 2),
            (64, 64, 8, 2),
            (64, 32, 4, 2),
            (64, 32, 8, 2),
            (64, 32, 8, 1),
            (32, 32, 4, 1),
            (16, 32, 4, 1),
        ],
        256: [
            (64, 64, 8, 2),
            (64, 32, 8, 2),
            (64, 32, 8, 1),
            (64, 16, 8, 1),
            (32, 32, 8, 1),
            (32, 16, 8, 1),
            (32, 16, 4, 1),
            (16, 16, 4, 1),
        ],
    },
    "grad_key_value": {
        64: [
            (64, 128, 8, 2),
            (64, 64, 4, 2),
            (64, 64, 8, 2),
            (32, 64, 4, 2),
            (32, 64, 8, 2),
            (32, 32, 4, 1),
        ],
        128: [
            (64, 128, 8, 2),
            (32, 128, 8, 2),
            (64, 64, 8, 2),
            (32, 64, 8, 2),
            (32, 64, 4, 2),
            (32, 64, 4, 1),
            (16, 64, 8, 1),
            (16, 64, 4, 1),
            (16, 32, 4, 1),
        ],
        256: [
            (32, 64, 8, 2),
            (32, 64, 8, 1),
            (16, 64, 8, 2),
            (16, 64, 8, 1),
            (16, 32, 8, 1),
            (16, 32, 4, 1),
            (16, 16, 4, 1),
        ],
    },
    "grad_bias": {
        64: [
            (128, 64, 8, 2),
            (64, 64, 4, 2),
            (64, 64, 4, 1),
            (64, 64, 8, 1),
            (64, 32, 4, 1),
            (32, 32, 4, 1),
        ],
        128: [
            (128, 64, 8, 2),
            (64, 64, 8, 2),
            (64, 64, 8, 1),
            (64, 64, 4, 1),
            (64, 32, 4, 1),
            (32, 32, 4, 1),
        ],
        256: [
            (64, 64, 8, 2),
            (64, 64, 8, 1),
            (64, 32, 8, 1),
            (64, 32, 4, 1),
            (32, 32, 8, 1),
            (32, 32, 4, 1),
            (16, 32, 4, 1),
        ],
    },
}
CHECK = {64: (64,), 128: (128, 96), 256: (256,)}


def variants(kind, weight):
    if kind == "grad_bias":
        return ("bias", "all together")
    return ("all together", "bias") if weight == "heavy" else ("packed", "window", "causal")


def find(a):
    kind, target, cls, prec, weight = a
    t = T[target]
    best = None
    for tile in CAND[kind][cls]:
        worst = 0
        ok = True
        for size in CHECK[cls]:
            for v in variants(kind, weight):
                _, r = job((target, size, prec, kind, v, tile))
                if r[0] == "ERR":
                    ok = False
                    worst = 10**9
                    break
                if r[1] > worst:
                    worst = r[1]
                if r[1] > 0 or r[2] * 1024 > t.shared_memory_limit or r[4] > t.tensor_memory_limit:
                    ok = False
                    worst = max(worst, r[1], 1 if r[1] == 0 else 0)
                if r[2] * 1024 > t.shared_memory_limit:
                    worst = 10**8
                if not ok:
                    break
            if not ok:
                break
        if ok:
            return a, tile, 0
        if best is None or worst < best[1]:
            best = (tile, worst)
    return a, best[0], best[1]


if __name__ == "__main__":
    out = sys.argv[1]
    precs = sys.argv[2].split(",")
    weights = sys.argv[3].split(",")
    kinds = sys.argv[4].split(",") if len(sys.argv) > 4 else list(CAND)
    targets = (
        sys.argv[5].split(",") if len(sys.argv) > 5 else ["sm_90", "sm_80", "sm_100", "gfx942"]
    )
    todo = [
        (k, t, c, p, w)
        for p in precs
        for w in weights
        for t in targets
        for k in kinds
        for c in (64, 128, 256)
        if not (k == "grad_bias" and w == "light") and not (p == "tf32x3" and t == "gfx942")
    ]
    res = []
    with ProcessPoolExecutor(2) as ex:
        for r in ex.map(find, todo):
            print(r, flush=True)
            res.append(r)
            json.dump(res, open(out, "w"))
