#!/usr/bin/env bash
# Everything that one GPU can say about the kernels: values first, then times, in under 4 minutes
# where a dozen processors compile. Offline; needs torch, triton, numpy and einops.
#
#     benchmarks/gpu_all.sh [FILE.json]        PYTHON=... names another interpreter
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-}
if [[ -z $python ]]; then
    python=python3
    [[ -x .venv/bin/python ]] && python=$PWD/.venv/bin/python
fi
# Asked from where the benchmark lies: from here, the folder `dualwave` would answer.
if ! (cd benchmarks && "$python" -c 'import dualwave.kernels.targets') 2> /dev/null; then
    # Not installed: the packages under their import names, as links.
    "$python" - << 'LINKS'
import sys
from pathlib import Path

sys.path.insert(0, "tests")
from typecheck import lay_out_links, read_package_folders

root = Path.cwd()
lay_out_links(root, read_package_folders(root))
LINKS
    export PYTHONPATH="$PWD/.links${PYTHONPATH:+:$PYTHONPATH}"
fi
exec "$python" benchmarks/spectral.py --device cuda --json "${1:-benchmarks/results/spectral_gpu.json}"
