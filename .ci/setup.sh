#!/bin/sh
# sh .ci/setup.sh [dev|own]: make the virtual environment $VENV ready for this checkout, with the
# ONNX Runtime for the GPU where there is one; EXTRA=cpu or EXTRA=gpu decides otherwise.
# Done at once and without a network if nothing has changed; safe to interrupt and to run twice at
# the same time.  Speaks on stderr only; what is missing is one line, and pip's output is in a log.
: "${PYTHON:=python3}" "${VENV:=.venv}"
log=$VENV/setup.log

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
pip() { "$VENV/bin/python" -m pip --disable-pip-version-check "$@" >>"$log" 2>&1 </dev/null; }
install() {
  pip install --no-user --progress-bar off --only-binary :all: --constraint constraints.txt "$@"
}

# A driver answers, and PyPI has an onnxruntime-gpu for this machine, as it has not for a Jetson.
suits_gpu() {
  case "$(uname -m) $(uname -r)" in
    *tegra*) false ;;
    x86_64*|aarch64*)
      [ -e /proc/driver/nvidia/version ] || nvidia-smi -L >/dev/null 2>&1 </dev/null ;;
    *) false ;;
  esac
}

# Another Python that is installed, or else where to write its path.
other() {
  for name in python3.13 python3.12 python3.11 python3.14 python3 /path/to/python3; do
    "$name" -c 'import ensurepip, sys; assert sys.version_info >= (3, 11)' 2>/dev/null && break
  done
  echo "make run PYTHON=$name"
}

check_python() {
  command -v "$PYTHON" >/dev/null ||
    fail "there is no $PYTHON: install Python 3.11 or newer, or name one: $(other)"
  version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&1) ||
    fail "$PYTHON does not run ($(echo "$version" | head -n 1)): name another: $(other)"
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$PYTHON is Python $version: install 3.11 or newer, or name one: $(other)"
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$PYTHON lacks venv or ensurepip: on Debian and Ubuntu, apt install python$version-venv"
}

# Without pip, which comes next.  --clear only empties what is a virtual environment already.
make_venv() {
  check_python
  clear=
  if [ -e "$VENV/pyvenv.cfg" ]; then
    clear=--clear
  elif [ -n "$(ls -A "$VENV" 2>/dev/null)" ]; then
    fail "$VENV is a folder of other files: name a new one: make run VENV=/tmp/workbench-venv"
  fi
  problem=$("$PYTHON" -m venv $clear --without-pip "$VENV" 2>&1) ||
    fail "cannot make $VENV ($(echo "$problem" | tail -n 1)): name another folder: make run VENV=/tmp/workbench-venv"
}

# pip writes INSTALLER into a package's records once all its files are there.
forget_half_installed() {
  for records in "$VENV"/lib/python3*/site-packages/*.dist-info; do
    [ ! -d "$records" ] || [ -e "$records/INSTALLER" ] || rm -rf "$records"
  done
}

# What is missing, from the log of a pip that failed.
reason() {
  if grep -q -e 'No space left' -e 'Disk quota' "$log"; then
    echo "the disk is full: torch and the rest need up to 6 GB in $VENV"
  elif grep -q -e 'NewConnectionError' -e 'NameResolutionError' -e 'Timeout' -e 'ProxyError' "$log"; then
    echo "no package index answers: setting up needs a network, later runs do not"
  elif package=$(sed -n 's/^ERROR: No matching distribution found for \([^ ]*\).*/\1/p' "$log") && [ "$package" ]; then
    advice="try another Python: make clean run PYTHON=python3.13"
    [ "${package#onnxruntime-gpu}" = "$package" ] || advice="do without it: make run EXTRA=cpu"
    echo "pip finds no $package for $("$VENV/bin/python" -V) on $(uname -m): $advice"
  else
    grep -i -m 1 '^error' "$log" || echo "pip failed"
  fi
}

if [ -z "$EXTRA" ]; then
  if suits_gpu; then EXTRA=gpu; else EXTRA=cpu; fi
fi
case $EXTRA in
  cpu) unwanted=gpu stale=onnxruntime_gpu ;;
  gpu) unwanted=cpu stale=onnxruntime ;;
  *) fail "EXTRA is cpu or gpu, not $EXTRA" ;;
esac
extras=$EXTRA${1:+,$1}

exec 9<constraints.txt  # the lock: flock(2) asks for no right to write
if command -v flock >/dev/null && ! flock -n 9; then
  say "another set-up of this checkout is at work: waiting for it"
  flock 9
fi

state="$PWD $(cat pyproject.toml constraints.txt | cksum)"
ready=$VENV/.ready-$extras
[ "$state" != "$(cat "$ready" 2>/dev/null)" ] || exit 0

say "making $VENV ready: a few minutes the first time"
"$VENV/bin/python" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix or sys.version_info < (3, 11))' \
  2>/dev/null || make_venv
: 2>/dev/null >"$log" || fail "cannot write to $VENV: name another folder: make run VENV=/tmp/workbench-venv"
forget_half_installed
# Editable installs without setup.py came with pip 21.3.
"$VENV/bin/python" -c '
from importlib.metadata import version
assert [*map(int, version("pip").split(".")[:2])] >= [21, 3]' 2>/dev/null ||
  "$VENV/bin/python" -m ensurepip --upgrade --default-pip >>"$log" 2>&1 ||
  fail "$VENV has no pip and its Python lacks ensurepip: on Debian and Ubuntu, apt install python3-venv"
# The two share one import package, so what is installed first has to go.
for records in "$VENV"/lib/python3*/site-packages/"$stale"-[0-9]*.dist-info; do
  [ ! -e "$records" ] || pip uninstall --yes onnxruntime onnxruntime-gpu || fail "$(reason) (log: $log)"
done
rm -f "$VENV/.ready-$unwanted"*
# The build backend stays in $VENV, so that a moved checkout is repaired without a network.
install hatchling editables && install --no-build-isolation --editable ".[$extras]" ||
  fail "$(reason) (log: $log)"
echo "$state" >"$VENV/.ready-$EXTRA" && echo "$state" >"$ready" || fail "cannot write to $VENV"
