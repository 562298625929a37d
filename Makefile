# make run     set everything up and open the workbench   (ARGS="--json --quick" for more,
#              EXTRA=cpu or EXTRA=gpu to choose the ONNX Runtime; else the driver decides)
# make test    set everything up, then lint, type-check and test; make test-workers has the long ones
# make test-fleet  run fleets on a real Slurm and a real sshd on this machine
# make test-html   open an exported page in Chromium
# make test-cuda   run the CUDA code on a stub of CUDA that computes on the CPU

export PYTHON ?= python3
export VENV ?= .venv
export EXTRA
ARGS ?=
export RUFF_CACHE_DIR = $(VENV)/cache/ruff
export MYPY_CACHE_DIR = $(VENV)/cache/mypy
# The tests start a thousand interpreters, each of which would compile our modules anew.
export PYTHONDONTWRITEBYTECODE =
python = "$$VENV/bin/python"
# Tools are run by the interpreter, since a script's first line cannot name every path.
script = $(python) "$$VENV/bin/$(1)"

.PHONY: run test test-workers test-cuda test-backends test-tensorflow test-html test-fleet lint ready ready-to-test clean
.PHONY: benchmark workloads start-up advisor regret own tables fuzz fresh faults soak campaign snapshots snapshots-all walks pictures first-hour

run: ready
	@$(call script,workbench) $(ARGS)

test: lint
	$(python) -m pytest -n 2 --dist worksteal tests/unit tests/screens tests/cli

# Faults, whole runs, every variant of every workload, pictures of a second size, tests with real
# workers one at a time, and a case of each part of `make faults`.
test-workers: ready-to-test
	$(python) -m pytest -n 2 --dist worksteal tests/faults tests/runs tests/variants
	$(python) -m pytest -n 2 -m sizes tests/screens
	$(python) -m pytest tests/worker
	$(python) -m pytest -n 2 benchmarks/faults --each 1

# The optional backends, installed for these tests.
test-backends:
	@sh .ci/setup.sh cpu,dev,jax,openvino,trees
	$(python) -m pytest tests/backends

# TensorFlow and Keras, which take 1.4 GB more.
test-tensorflow:
	@sh .ci/setup.sh cpu,dev,tensorflow
	$(python) -m pytest tests/backends/test_tensorflow.py

test-cuda: ready-to-test
	@command -v g++ >/dev/null || { echo "make test-cuda: there is no g++: apt install g++" >&2; exit 1; }
	$(python) -m pytest tests/cuda

test-html: ready-to-test
	@command -v chromium >/dev/null || { echo "make test-html: there is no chromium: apt install chromium" >&2; exit 1; }
	$(python) -m pytest tests/html

test-fleet: export FLEET_LAB ?= $(VENV)/cache/slurm
test-fleet:
	@sh .ci/setup.sh cpu,dev,fleet-dev
	tests/fleet/slurm_lab.sh get "$$FLEET_LAB"
	$(python) -m pytest tests/fleet

lint: ready-to-test
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	$(call script,lint-imports) --no-cache

benchmark: ready
	$(python) -m benchmarks.campaign
	$(python) benchmarks/detection.py

workloads: ready
	$(python) -m benchmarks.workloads

start-up: ready
	$(python) -m benchmarks.start_up

advisor: ready
	$(python) -m benchmarks.advisor
	$(python) -m benchmarks.second_opinion

regret: ready
	$(python) -m benchmarks.regret

# Hours; ARGS="--only bert" takes one module, "--report" prints what is known.
own:
	@sh .ci/setup.sh own
	$(python) -m benchmarks.own $(ARGS)

tables: ready
	$(python) benchmarks/tables.py

fuzz: ready
	$(python) benchmarks/fuzz_models.py $(ARGS)

fresh:
	$(PYTHON) benchmarks/fresh_machines.py $(ARGS)

# Half an hour that tries to break it; ARGS="--each 1" takes half a minute, "-k kills-17" one case.
faults: ready-to-test
	$(python) -m pytest -n 2 benchmarks/faults $(ARGS)

soak: ready-to-test
	$(python) -m benchmarks.soak $(ARGS)

# On a machine with a GPU: docs/cuda.md.  ARGS="--part 1 --into FOLDER" runs one part.
first-hour: ready-to-test
	$(python) -m benchmarks.first_hour $(or $(ARGS),--part all --into first-hour)

campaign: ready-to-test
	$(python) -m pytest -m campaign

# A thousand random walks over the screens; WALKS=20 takes some of them.
walks: ready-to-test
	$(python) -m pytest -n 2 -m "campaign or not campaign" tests/screens -k random_keys

snapshots: ready-to-test
	$(python) -m pytest tests/screens -m "not campaign" --snapshot-update

# Every screen at four sizes, on machines with 0, 1 and 8 GPUs, in every theme.
snapshots-all: ready-to-test
	$(python) -m pytest -n 2 -m "campaign or not campaign" -k "not random_keys" tests/screens

# The pictures of README and docs, from recorded runs; ARGS=advice makes one.
pictures: ready
	$(python) -m benchmarks.pictures $(ARGS)

# Set-up speaks on stderr: the standard output of `make run ARGS=--json` is the document alone.
ready:
	@sh .ci/setup.sh

ready-to-test:
	@sh .ci/setup.sh dev

clean:
	[ ! -e "$$VENV/pyvenv.cfg" ] || rm -rf "$$VENV"
	rm -rf dist build .pytest_cache .hypothesis
