#!/usr/bin/env bash
# The first minutes on a GPU that is available for minutes: correctness and speed, then the study's trainings in order of priority.
#   tools/gpu_first.sh BENCH_MINUTES BATCH_MINUTES [PACK]     e.g.  tools/gpu_first.sh 3 6.2
# Needs python3 with torch, numpy and scipy, and a bare pack (`blockrr data pack --bare`), by default .pack/blockrr-cifar10.bare.zip.
# A pack that is too large for one transfer may come in parts (PACK.part0, PACK.part1, made by `split -n 2 -d -a 1`) in several calls;
# with 0 minutes for both, a call only brings its part. Without the pack, the benchmark uses noise, which is as fast.
# Results go to $OUT (default: runs/gpu-out): bench.json, records.tgz (renewed while the batch runs), log.txt.
# Records gather in runs/gpu, so a second call on the same machine goes on: tools/gpu_first.sh 0 3
# Afterwards, at home: mkdir x && tar xzf records.tgz -C x && blockrr merge x --output results/gpu
set -uo pipefail
cd "$(dirname "$0")/.."
bench=$1 batch=$2 pack=${3:-.pack/blockrr-cifar10.bare.zip} out=${OUT:-runs/gpu-out}
mkdir -p "$out" runs/gpu
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
keep() { tar czf "$out/.records.tgz" -C runs/gpu --exclude='.claims' . && mv "$out/.records.tgz" "$out/records.tgz"; }
[ -e "$pack" ] || [ ! -e "$pack.part1" ] || cat "$pack".part? > "$pack"
{
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader || echo "no nvidia-smi"
    python3 -c 'import sys, torch, numpy, scipy; print("python", sys.version.split()[0], "torch", torch.__version__, "numpy", numpy.__version__, "scipy", scipy.__version__, "cuda", torch.cuda.is_available())'
    status=0
    if [ "$bench" != 0 ]; then python3 tools/bench_resnet.py $([ -e "$pack" ] && echo --pack "$pack") --minutes "$bench" --json "$out/bench.json" ${BENCH_OPTIONS:-} || status=$?; fi
    if [ "$batch" != 0 ]; then
        python3 -m blockrr gpu-batch --minutes "$batch" --pack "$pack" --output runs/gpu ${BATCH_OPTIONS:-} &
        worker=$!
        while kill -0 $worker 2>/dev/null; do sleep 5; keep; done
        wait $worker || status=$?
        keep
    fi
    echo "records: $(ls runs/gpu/records 2>/dev/null | wc -l); status $status"
} 2>&1 | tee "$out/log.txt"
