# Forebay. `make help` lists the targets; `make demo` and `make test` need nothing but Python 3.11 and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

UV_VERSION := 0.13.9
TOOLS := .tools/uv
# An uv that is already there is used; else a pinned one goes into the work tree.
UV := $(or $(shell command -v uv 2>/dev/null),$(TOOLS)/bin/uv)
RUN := $(UV) run --no-sync
SOURCES := contracts/src runtime/src sdk/src deploy/local/src deploy/testcluster/src $(wildcard services/*/src)
MEMBER_TESTS := $(wildcard contracts/tests runtime/tests sdk/tests deploy/local/tests deploy/testcluster/tests services/*/tests)
DATASET ?=
ARGS ?=
KILLS ?= 1000
RUNS ?= 10
BUSY ?= 3
MINUTES ?= 60

.PHONY: help setup demo test test-repeat test-cluster verify format generate provenance chaos soak bench-bus bench-sync bench-rebuild bench-ingest bench-registry bench-cache bench-gate bench-scale picture clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

$(TOOLS)/bin/uv:
	@mkdir -p .tools
	@python3 -m venv $(TOOLS) >/dev/null 2>&1 && $(TOOLS)/bin/python -m pip install --quiet uv==$(UV_VERSION) \
	  || { rm -rf $(TOOLS) && python3 -m pip install --quiet --target $(TOOLS) uv==$(UV_VERSION); } \
	  || { echo "uv could not be installed: it needs python3-venv or python3-pip" >&2; exit 1; }

setup: $(UV) ## Install everything from the lock file into .venv (and uv into .tools when it is missing)
	@$(UV) sync --locked --quiet

demo: setup ## Run the whole story; DATASET=folder takes any LeRobot v3.0 dataset instead of the recorded one
	@$(RUN) python examples/demo.py $(if $(DATASET),--dataset "$(DATASET)")

test: setup ## Run every test, real servers included
	@$(RUN) python -m tests.servers.ferretdb
	@$(RUN) pytest -q

test-repeat: setup ## Run every test RUNS times, the last BUSY of them with all cores kept busy; prints which failed
	@$(RUN) python -m tests.servers.ferretdb
	@$(RUN) python -m tests.repeat --runs $(RUNS) --busy $(BUSY) -- $(ARGS)

test-cluster: setup ## Run tests/cluster on a real Kubernetes with Kueue: built once (12 minutes), started, stopped
	@$(RUN) python -m tests.cluster $(ARGS)

verify: setup ## Check generated files, lint, types, layers, spelling and the lock file
	$(RUN) python -m forebay.contracts.generate --check
	$(RUN) python -m forebay.ingest.rule_pages --check
	$(RUN) ruff check --quiet .
	$(RUN) ruff format --check --quiet .
	$(RUN) mypy $(SOURCES) tests $(wildcard examples/*.py)
	@$(foreach folder,$(MEMBER_TESTS),echo "mypy $(folder)" && $(RUN) mypy --no-error-summary $(folder) &&) true
	$(RUN) lint-imports --no-logo
	$(RUN) codespell
	$(UV) lock --check --quiet

format: setup ## Format the code and mend what the linter can mend
	$(RUN) ruff check --fix --quiet .
	$(RUN) ruff format --quiet .

generate: setup ## Write schemas, AsyncAPI, permissions, streams and tables from events, and the page of rules
	$(RUN) python -m forebay.contracts.generate
	$(RUN) python -m forebay.ingest.rule_pages

provenance: setup ## Compare the wheels of Go and nats-server with what their sources give; needs the Go module proxy
	$(RUN) python -m tests.architecture.provenance

chaos: setup ## Kill random services KILLS times while the chain runs, then compare every digest
	$(RUN) python -m tests.chaos --kills $(KILLS)

soak: setup ## Steady load for MINUTES; fails when memory, descriptors or threads of a service grow
	$(RUN) python -m tests.chaos.soak --minutes $(MINUTES)

bench-bus: setup ## Publish and consume against bare nats-py, one JSON line per figure
	@$(RUN) python -m tests.performance.bench_bus

bench-sync: setup ## Publish with fsync before each acknowledgement against intervals, one JSON line per figure
	@$(RUN) python -m tests.performance.bench_sync

bench-rebuild: setup ## Fold the registry's documents from a log, one JSON line per figure
	@$(RUN) python -m tests.performance.bench_rebuild

bench-ingest: setup ## Validate and convert against copying, hashing and decoding; DATASET=folder BYTES=2e9 for a large one
	@$(RUN) python -m tests.performance.bench_ingest $(if $(DATASET),--dataset "$(DATASET)") $(if $(BYTES),--bytes $(BYTES))

bench-registry: setup ## Rebuild and questions of the registry against plain SQLite edges; SCALE=1 is 100,000 episodes
	@$(RUN) python -m tests.performance.bench_registry $(if $(SCALE),--scale $(SCALE))

bench-cache: setup ## Plans and warm-ups against whole versions, cold epochs and plain reads; SMALL=1 takes seconds
	@$(RUN) python -m tests.performance.bench_cache_plan $(if $(SMALL),--small)
	@$(RUN) python -m tests.performance.bench_cache $(if $(SMALL),--small)

bench-gate: setup ## Gates and verdicts on a real cluster against the same writes by hand; JOBS=500 for the long run
	@$(RUN) python -m tests.performance.bench_gate $(if $(JOBS),--jobs $(JOBS))

bench-scale: setup ## The bridge under thousands of jobs, beside a bare watch; NODES=1000 JOBS=5000 unless told otherwise
	@$(RUN) python -m tests.performance.bench_scale $(if $(NODES),--nodes $(NODES)) $(if $(JOBS),--jobs $(JOBS))

picture: setup ## Run the demo in a terminal of its own and draw it for the README
	$(RUN) python examples/terminal_picture.py examples/demo.svg --sections 1 2 5 7 8 --lines 26 -- python examples/demo.py

clean: ## Remove what was built (stops nothing; see: forebay down)
	rm -rf .venv .tools .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
