# Two commands on a fresh machine: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

help:  ## what there is
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(VENV)/.demo  ## the whole path on a simulated machine, in a few seconds; no root, no cluster
	@$(BIN)/coreslice demo

test: $(VENV)/.dev lint  ## everything this machine can run; says what it leaves out and why
	@$(BIN)/python tests/rungs.py

test-full: $(VENV)/.dev lint  ## all of it: every mode of the installed driver, the allocators and validations of every version
	@$(BIN)/python tests/rungs.py --full

test-fast: $(VENV)/.dev  ## unit and contract tests only
	@$(BIN)/python tests/rungs.py unit contract

lint: $(VENV)/.dev  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	@$(BIN)/lint-imports >.import_linter.log || { cat .import_linter.log; exit 1; }

proto: $(VENV)/.dev  ## regenerate the gRPC code from proto/
	$(BIN)/python proto/generate.py

node: $(VENV)/.dev  ## a real Kubernetes node with the driver on it, left running (root, Go, Debian)
	@$(BIN)/python tests/cluster/node.py packages
	@$(BIN)/python tests/cluster/node.py build
	@$(BIN)/python tests/cluster/node.py up

fuzz-slices: $(VENV)/.dev  ## the slice linter against the API validation of every minor (Go; FUZZ_SEED repeats a run)
	FUZZ_SLICES=$${FUZZ_SLICES:-10000} FUZZ_MINORS=$${FUZZ_MINORS:-34,35,36,37} FUZZ_SEED=$${FUZZ_SEED:-$$(date +%s)} \
		$(BIN)/python -m pytest -q tests/oracle/test_slice_validation.py

node-stop: $(VENV)/.dev  ## end it and clean up
	@$(BIN)/python tests/cluster/node.py down

bench-fleet: $(VENV)/.dev  ## what the real scheduler pays for each way to publish (root, Go, an idle machine; SHORT=1: one pass)
	@$(BIN)/python tests/cluster/node.py build
	@PYTHONPATH=tests/cluster:tests/fleet $(BIN)/python -m fleetbench $(if $(SHORT),--short) $(if $(SMOKE),--smoke)

clean:  ## remove the virtual environment and caches of tools
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.demo: requirements/bootstrap.txt requirements/demo.txt pyproject.toml
	@tests/venv.sh "$(PYTHON)" $(VENV) demo

$(VENV)/.dev: requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	@tests/venv.sh "$(PYTHON)" $(VENV) dev

.PHONY: help demo test test-full test-fast lint proto node node-stop fuzz-slices bench-fleet clean
