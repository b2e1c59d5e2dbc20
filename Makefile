# Every command sets up what it needs, in .venv, by scripts/setup: `make demo` what running needs, the others the tools of development too.
PYTHON ?= python3
BIN := .venv/bin
# What Python has compiled is kept: without it every worker of the tests compiles all of them anew, ten seconds each.
unexport PYTHONDONTWRITEBYTECODE

# Two set-ups at once would be in each other's way.
.NOTPARALLEL:

.PHONY: help demo test test-long test-quick test-pythons check unused release-check bench docs format fuzz setup clean
.PHONY: test-cluster compare-all testbed-build testbed-up testbed-down testbed-status

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

demo: .venv/.run  ## plan an example workflow, run it, and run it again
	@scripts/demo

test: .venv/.test  ## the tests, but for those that take long and seldom break (under ten minutes on two cores)
	$(BIN)/python -m pytest -n 2 -m "not long"

test-long: .venv/.test  ## the tests that `make test` leaves out: thousands of kills, bombs, random requests (some minutes)
	$(BIN)/python -m pytest -n 2 -m long

test-quick: .venv/.test  ## the tests that take no time (under a minute on two cores)
	$(BIN)/python -m pytest -n 2 -m "not slow and not long"

test-pythons: .venv/.test  ## the quick tests on every supported Python that is here (VERSIONS="3.12 3.13")
	@scripts/test-pythons $(VERSIONS)

test-cluster: .venv/.test  ## tests against real controllers: Kubernetes, Kueue, Argo, Tekton, JobSet, YuniKorn (needs Go)
	@scripts/test-cluster

compare-all: .venv/.test  ## every document of the corpus against the real Argo and Tekton (PENSTOCK_CORPUS; up to an hour, needs Go)
	@$(BIN)/python -m testbed able
	@$(BIN)/python -m testbed build kwok argo tekton
	PENSTOCK_COMPARE=all $(BIN)/python -m pytest -p no:xdist -rs tests/cluster/test_agreement.py

testbed-build: .venv/.test  ## build the programs of the testbed (once; about half an hour from nothing)
	@$(BIN)/python -m testbed build $(COMPONENTS)

testbed-up: .venv/.test  ## start a Kubernetes with the controllers and leave it running (COMPONENTS="kueue kwok", NODE=real)
	@$(BIN)/python -m testbed up $(COMPONENTS) $(if $(NODE),--node $(NODE))

testbed-down: .venv/.test  ## end what testbed-up started
	@$(BIN)/python -m testbed down

testbed-status: .venv/.test  ## list the running instances
	@$(BIN)/python -m testbed status

check: .venv/.test  ## format, lint, types, layers, shape, unused code, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/structure
	$(BIN)/python scripts/unused
	$(BIN)/python scripts/docs --check

unused: .venv/.test  ## what nothing in the source uses, with what is allowed
	@$(BIN)/python scripts/unused --all

release-check: .venv/.test  ## build what a release would publish, check it, install it and try it
	@$(BIN)/python scripts/release-check

bench: .venv/.test  ## measure against the bars, as a table
	$(BIN)/python -m bench

fuzz: .venv/.test  ## every reader against hostile input, a minute each
	@scripts/fuzz

docs: .venv/.test  ## write the generated pages of docs/reference
	$(BIN)/python scripts/docs

format: .venv/.test  ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: .venv/.test  ## install what the tests need (scripts/setup run: only what running needs)

# What has the tools has all that running needs, so .venv/.test renews both.
.venv/.run .venv/.test: pyproject.toml constraints.txt scripts/setup
	@PYTHON="$(PYTHON)" scripts/setup $(@:.venv/.%=%)

clean:  ## remove what setup and the tests made
	rm -rf .venv .venvs dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .fuzz
