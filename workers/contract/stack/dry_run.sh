#!/usr/bin/env bash
# Trains @name@ without the control plane, on @uses@. README.txt says what it needs.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

# The interpreter with torch, trl and accelerate, and with vllm if a server is started.
TRAINER_PYTHON=${TRAINER_PYTHON:-}
if [[ -z $TRAINER_PYTHON ]]; then
  TRAINER_PYTHON=@interpreter@
fi
export PYTHONUNBUFFERED=1 DO_NOT_TRACK=1 HF_HUB_DISABLE_TELEMETRY=1
if ! "$TRAINER_PYTHON" -c 'import workers.trainer' 2>/dev/null; then
  echo "run.sh: $TRAINER_PYTHON can't import workers.trainer." >&2
  echo "Put the project's folder on PYTHONPATH, and the trainer's interpreter into TRAINER_PYTHON." >&2
  exit 2
fi
mkdir -p logs

# Every process has its own process group, named by its pid, so that the whole group can be stopped.
pids=()
# shellcheck disable=SC2317,SC2329  # called by the traps
finish() {
  local status=$? pid deadline
  trap - EXIT INT TERM HUP
  for pid in "${pids[@]}"; do
    kill -TERM -- "-$pid" 2>/dev/null || true
  done
  deadline=$((SECONDS + 30)) # vLLM needs some time to stop its engine
  for pid in "${pids[@]}"; do
    while kill -0 -- "-$pid" 2>/dev/null; do
      if ((SECONDS >= deadline)); then
        kill -KILL -- "-$pid" 2>/dev/null || true
        break
      fi
      sleep 0.2
    done
    wait "$pid" 2>/dev/null || true
  done
  exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
@functions@
@steps@
# The first process to exit decides, since a trainer would wait forever for a server that has exited.
status=0
wait -n "${pids[@]}" || status=$?
if kill -0 "$trainer" 2>/dev/null; then
  echo "run.sh: a vLLM server has exited; see logs/." >&2
  exit 1
fi
exit "$status"
