#!/bin/bash
#SBATCH --job-name=datalens
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
# One training job over all GPUs of the allocation: sbatch train.sh DATA.npz OUT --epsilon 1 --preset paper
# Nobody can be asked here, so the class names are confirmed: look at them before, with `datalens train` at a terminal.
# Started again with the same arguments (--requeue does it), it replays what was drawn and continues.
set -euo pipefail
data=$1 out=$2
shift 2
umask 077

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 20000))
srun --kill-on-bad-exit=1 torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "$SLURM_GPUS_ON_NODE" \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:$port" \
    -m datalens_service.cli train --data "$data" --out "$out" --device gpu --confirm-classes "$@"
