# Two commands do all set-up: `make demo` and `make test`. Everything is installed into .venv by scripts/setup.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo test check bench docs format fuzz setup clean test-cluster testbed-build testbed-up testbed-down testbed-status

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

demo: .venv/.ready  ## plan an example workflow, run it, and run it again
	@scripts/demo

test: .venv/.ready  ## all tests (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 2

test-cluster: .venv/.ready  ## tests against real controllers: Kubernetes, Kueue, Argo, Tekton, JobSet, YuniKorn (needs Go)
	@scripts/test-cluster

testbed-build: .venv/.ready  ## build the programs of the testbed (once; about half an hour from nothing)
	@$(BIN)/python -m testbed build $(COMPONENTS)

testbed-up: .venv/.ready  ## start a Kubernetes with the controllers and leave it running (COMPONENTS="kueue kwok", NODE=real)
	@$(BIN)/python -m testbed up $(COMPONENTS) $(if $(NODE),--node $(NODE))

testbed-down: .venv/.ready  ## end what testbed-up started
	@$(BIN)/python -m testbed down

testbed-status: .venv/.ready  ## list the running instances
	@$(BIN)/python -m testbed status

check: .venv/.ready  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/docs --check

bench: .venv/.ready  ## measure against the bars, as a table
	$(BIN)/python -m bench

fuzz: .venv/.ready  ## every reader against hostile input, a minute each
	@scripts/fuzz

docs: .venv/.ready  ## write the generated pages of docs/reference
	$(BIN)/python scripts/docs

format: .venv/.ready  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup

clean:  ## remove what setup and the tests made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz
