# What a node of a fleet runs.  It writes into the job's folder alone, nothing connects back, and
# the exit code comes last.
cd "$job" || exit 1
mkdir started || exit 75 # two launchers submitted it, or the cluster began it again
exec >>log.txt 2>&1 </dev/null

finish() {
  echo "$1" >.exit_code
  mv .exit_code exit_code
  exit "$1"
}
stop() {
  echo "workbench: $1"
  finish 2
}

# Traps of the environment that make a node look slower than it is.
for name in OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS; do
  eval "value=\${$name:-}"
  [ -z "$value" ] || stop "$name=$value comes from elsewhere and limits threads: unset it where the fleet is started, or in the node's profile"
done
usable=$(nproc)
allotted=${SLURM_CPUS_ON_NODE:-$usable}
per_task=${SLURM_CPUS_PER_TASK:-$allotted}
[ "$usable" -ge "$allotted" ] || stop "the affinity mask allows $usable of the $allotted CPUs of this job: unset SLURM_CPU_BIND where the fleet or Slurm's daemon is started"
[ "$per_task" -ge "$allotted" ] || stop "SLURM_CPUS_PER_TASK=$per_task in a job of $allotted CPUs comes from elsewhere: unset it in the node's prolog or profile"

state=$(mktemp -d) || state=$job/.state
trap 'rm -rf "$state"' EXIT
trap 'exit 143' TERM INT HUP # without it dash dies of the signal and leaves the folder behind
export XDG_STATE_HOME="$state" XDG_CONFIG_HOME="$state" # a node's own settings do not count
if [ -n "$wheels" ]; then
  unset PYTHONPATH
  "$python" -m venv "$state/venv" && "$state/venv/bin/python" -m pip install --quiet --no-index --disable-pip-version-check --find-links "$wheels" "$wheels"/*.whl ||
    stop "$python installs no wheels on $(uname -n): it needs venv, and --wheels those of its version, platform and all dependencies"
  python=$state/venv/bin/python
fi
"$python" -P -m workbench doctor --json >.doctor.json
[ -s .doctor.json ] || stop "$python does not start workbench on $(uname -n): install it there, or name another with --python"
mv .doctor.json doctor.json
cd "$directory" || stop "$(uname -n) does not see $directory: start the fleet in a folder that the nodes share"
start() { "$@"; }
if [ "$nodes" -gt 1 ]; then
  MASTER_ADDR=$(uname -n)
  export MASTER_ADDR
  # On every node of the job, the first of which leads.  Ranks write into the log themselves, since
  # srun drops messages of those that it kills.
  start() {
    srun --nodes="$nodes" --ntasks-per-node=1 --cpus-per-task="$allotted" --cpu-bind=none \
      --kill-on-bad-exit=1 --open-mode=append --error="$job/log.txt" "$@"
  }
fi
start "$python" -P -m workbench "$@" >"$job/run.jsonl"
code=$?
cd "$job" || exit
"$python" -P -m workbench open run.jsonl --json >.document.json && mv .document.json document.json
finish "$code"
