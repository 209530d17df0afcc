#!/usr/bin/env bash
# Prove the Slurm path: start a single-node Slurm of one's own, run a profile through it, stop what was started.
#   tools/slurm_smoke.sh [--install] [PROFILE [OUTPUT]]     default: smoke, runs/slurm
# Needs root, Debian's slurm-wlm and munge, and snakemake-executor-plugin-slurm; --install gets what is missing.
# Key, sockets, ports and state live in a temporary folder. A machine that has a Slurm of its own is left alone: there,
# `blockrr reproduce --cluster slurm` is all that is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --install ]; then
    shift
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends slurm-wlm munge
    python -c 'import snakemake_executor_plugin_slurm' 2>/dev/null || python -m pip install -q snakemake-executor-plugin-slurm
fi
profile=${1:-smoke} output=${2:-runs/slurm}
for program in munged slurmctld slurmd sbatch squeue; do command -v $program >/dev/null || { echo "slurm_smoke: $program is missing; try --install"; exit 2; }; done
python -c 'import snakemake_executor_plugin_slurm' 2>/dev/null || { echo "slurm_smoke: snakemake-executor-plugin-slurm is missing; try --install"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "slurm_smoke: slurmd has to be started by root"; exit 2; }
[ ! -e /etc/slurm/slurm.conf ] || { echo "slurm_smoke: /etc/slurm/slurm.conf exists: this machine has a Slurm of its own"; exit 2; }

work=$(mktemp -d) started=() linked=
stop() {
    status=$?
    squeue -h -o %i 2>/dev/null | xargs -r scancel 2>/dev/null || true
    for ((i = ${#started[@]} - 1; i >= 0; i--)); do kill "${started[i]}" 2>/dev/null || true; done # the last started first; only what we started
    for pid in "${started[@]}"; do for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep .1; done; done
    [ $status = 0 ] || tail -n 20 "$work"/*.log || true
    [ -z "$linked" ] || rm -f /etc/slurm/slurm.conf # the link we made
    rm -rf "$work"
    echo "+ stopped ${#started[@]} daemons, removed their folder"
}
trap stop EXIT

host=$(hostname -s) port=$((20000 + RANDOM % 20000)) cpus=$(nproc)
dd if=/dev/urandom of="$work/key" bs=1024 count=1 status=none
chmod 700 "$work" && chmod 400 "$work/key"
mkdir "$work/state" "$work/spool"
cat > "$work/slurm.conf" <<CONF
ClusterName=smoke
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
MpiDefault=none
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=8000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
mkdir -p /etc/slurm && ln -s "$work/slurm.conf" /etc/slurm/slurm.conf && linked=yes # jobs look for it there
munged --foreground --force --key-file="$work/key" --socket="$work/munge.socket" --pid-file="$work/munged.pid" --seed-file="$work/munged.seed" --log-file="$work/munged.log" >"$work/munged.out" 2>&1 &
started+=($!)
for _ in $(seq 50); do [ -S "$work/munge.socket" ] && break; sleep .1; done
slurmctld -D -c >"$work/slurmctld.log" 2>&1 &
started+=($!)
slurmd -D -N "$host" >"$work/slurmd.log" 2>&1 &
started+=($!)
for _ in $(seq 100); do sinfo -h -o %T 2>/dev/null | grep -q idle && break; sleep .2; done

show() { sed -e "s#$work#WORK#g" -e "s#$PWD#.#g" -e "s/\b$host\b/NODE/g"; }
echo "+ $(slurmctld -V), one node:"
sinfo -o "%P %t %c" | show
echo "+ blockrr reproduce --profile $profile --cluster slurm-squeue --output $output"
blockrr reproduce --profile "$profile" --cluster slurm-squeue --output "$output" 2>&1 | show
echo "+ jobs that Slurm ran:"
grep -ho 'sched: Allocate JobId=[0-9]*\|_job_complete: JobId=[0-9]* .*' "$work/slurmctld.log" | show | sort | uniq -c | sort -k4 | awk '{ $1 = ""; print }' | grep -c 'Allocate' | sed 's/$/ allocations/'
grep -ho '_job_complete: JobId=[0-9]* WEXITSTATUS [0-9]*' "$work/slurmctld.log" | sed 's/_job_complete: //'
echo "+ records:"
python - "$output" <<'PY'
import sys
from pathlib import Path
from blockrr.study.records import load
for path in sorted(Path(sys.argv[1], "records").glob("*.json")): print(f"{path.name}: {len(load(path))} records")
PY
