#!/bin/bash
# 8 hosts with 4 GPUs each, a process a host. A job that loses a host is queued again and goes on from its store.
#SBATCH --job-name=tallmc
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00
#SBATCH --requeue
set -euo pipefail
data=${1:?usage: sbatch slurm.sh DATA STORE}
store=${2:?usage: sbatch slurm.sh DATA STORE}
# A process that fails takes the others with it, so that none waits.
srun --kill-on-bad-exit=1 python sample.py "$data" "$store" || {
    scontrol requeue "$SLURM_JOB_ID"
    exit 1
}
