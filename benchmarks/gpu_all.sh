#!/usr/bin/env bash
# Everything that one GPU can say about the kernels: values first, then times, in under 6 minutes
# where a dozen processors compile. Offline; needs torch, triton, numpy and einops. It never ran on
# a GPU.
#
#     benchmarks/gpu_all.sh [FOLDER]        for OPERATION_gpu.json; PYTHON=... names an interpreter
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-}
if [[ -z $python ]]; then
    python=$(command -v python || command -v python3)
    [[ -x .venv/bin/python ]] && python=$PWD/.venv/bin/python
fi
# The checkout's root is enough: dualwave/__init__.py finds the packages beside it, installed or not.
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
status=0
for operation in spectral attention contrastive; do
    "$python" "benchmarks/$operation.py" --device cuda \
        --json "${1:-benchmarks/results}/${operation}_gpu.json" || status=$?
    [[ $status == 2 ]] && break # there is no GPU
done
exit "$status"
