#!/bin/bash
#SBATCH --job-name=datalens-worker
#SBATCH --ntasks=1
#SBATCH --gpus=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
# One worker of the service on a GPU: sbatch --array=1-4 worker.sh
# Settings (docs/operations.md) are exported by this file, readable by you alone; DATALENS_DATABASE_URL and others.
set -euo pipefail
umask 077
set -a
source "${DATALENS_ENVIRONMENT:-$HOME/.config/datalens/environment}"
set +a
export DATALENS_QUEUE=gpu DATALENS_DEVICE=cuda

# Slurm warns two minutes before the end; the worker then gives its job back, and another one continues.
celery -A datalens_service.workers.app worker --concurrency 1 --without-gossip --without-mingle --loglevel info &
worker=$!
trap 'kill -TERM "$worker"' TERM
wait "$worker" || true
wait "$worker"
