#!/usr/bin/env bash
# Pre-training on a bare machine with one GPU, PyTorch, NumPy and SciPy; run from the root of the source tree.
#
#   tools/gpu_pretrain.sh check PACK OUT          about 3 minutes: right? how fast? how much memory? which rate and loss?
#   tools/gpu_pretrain.sh train PACK OUT [ARGS]   MINUTES (default 8) and about one more for reading and features
#   tools/gpu_pretrain.sh keep  OUT               at home: join the encoder's parts, put features and encoder under results/pretrain
#
# PACK is what `blockrr data pack --bare` writes (about 53 MiB for CIFAR-10_1; NumPy alone reads it, in minutes on one core, less on many), or what
# `blockrr data pack` writes (58 MiB, read in seconds where Pillow is installed: the better choice there). If only PACK.part0, PACK.part1 are there (from `split -n 2 -d -a 1 PACK
# PACK.part`, as for tools/gpu_first.sh), they are joined first. OUT gets check.json, or log.txt, NAME.npz, NAME.json and
# the encoder in parts of at most 15 MiB. A train that was cut off continues if the same machine still has CHECKPOINT.
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-/tmp/blockrr-inductor}
checkpoint=${CHECKPOINT:-/tmp/blockrr-pretrain.pt} device=${DEVICE:-cuda} what=${1:?check, train or keep}
python=${PYTHON:-python3}
join() { if [ ! -e "$1" ]; then cat "$1".part* > "$1.tmp" && mv "$1.tmp" "$1"; fi; }
case $what in
check)
    mkdir -p "$3"
    join "$2"
    "$python" tools/check_pretrain.py --pack "$2" --device "$device" --seconds "${SECONDS_EACH:-10}" --json "$3/check.json" "${@:4}" 2>&1 | tee "$3/check.txt" ;;
train)
    mkdir -p "$3"
    join "$2"
    { command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader; } | tee "$3/log.txt" || true
    "$python" -m blockrr pretrain --pack "$2" --minutes "${MINUTES:-8}" --device "$device" --output "$3" --checkpoint "$checkpoint" "${@:4}" 2>&1 | tee -a "$3/log.txt"
    split -b 15m -d "$3/encoder.pt" "$3/encoder.pt.part" && rm "$3/encoder.pt"
    rm -f "$checkpoint"
    ls -l "$3" ;;
keep)
    mkdir -p results/pretrain
    cat "$2"/encoder.pt.part* > results/pretrain/encoder.pt # describes the data sets that have no file there
    for f in "$2"/*.npz; do
        name=$(basename "$f" .npz)
        cp "$f" "${f%.npz}.json" results/pretrain/
        "$python" -c "import sys; from blockrr.learning.data import dataset; from blockrr.learning.pretrained import pretrained; print(pretrained(dataset(sys.argv[1])))" "$name"
    done
    ls -l results/pretrain ;;
*) echo "check, train or keep, got $what" >&2; exit 2 ;;
esac
