# make run     set everything up and open the workbench   (ARGS="--json --quick" for more)
# make test    set everything up, then lint, type-check and test

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
INSTALL = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint fuzz campaign snapshots benchmark workloads tables advisor regret faults soak clean

run: $(VENV)/.ready
	@$(VENV)/bin/workbench $(ARGS)

test: lint
	$(VENV)/bin/python -m pytest -n 2 --dist worksteal tests/unit tests/screens tests/cli tests/faults
	$(VENV)/bin/python -m pytest tests/worker

lint: $(VENV)/.ready-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

benchmark: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/campaign.py
	$(VENV)/bin/python benchmarks/detection.py

workloads: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/workloads.py

advisor: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/advisor.py

regret: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/regret.py

tables: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/tables.py

fuzz: $(VENV)/.ready
	$(VENV)/bin/python benchmarks/fuzz_models.py $(ARGS)

# Thirty minutes that try to break it; ARGS="--short" takes half a minute, "--only kills:17" one case.
faults: $(VENV)/.ready-dev
	$(VENV)/bin/python -m benchmarks.faults $(ARGS)

soak: $(VENV)/.ready-dev
	$(VENV)/bin/python -m benchmarks.soak $(ARGS)

campaign: $(VENV)/.ready-dev
	$(VENV)/bin/python -m pytest -m campaign

snapshots: $(VENV)/.ready-dev
	$(VENV)/bin/python -m pytest tests/screens --snapshot-update

# Set-up speaks on stderr: the standard output of `make run ARGS=--json` is the document alone.
$(VENV)/bin/python:
	@$(PYTHON) -m venv $(VENV) >&2

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "setting up $(VENV): a few minutes the first time" >&2
	@$(INSTALL) --editable '.[cpu]' >&2
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@$(INSTALL) --editable '.[cpu,dev]' >&2
	@touch $@

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
