# sharedmem: `make` lists what there is. Works from any directory: make -C path, make -f path/Makefile.

ROOT := $(shell cd "$$(dirname "$(strip $(MAKEFILE_LIST))")" && pwd -P)
TARGETS := help demo test test-all quick chaos lint types generate check console bench eval clean

.DEFAULT_GOAL := help
.PHONY: $(TARGETS)

ifneq ($(CURDIR),$(ROOT))

$(TARGETS):
	@$(MAKE) --no-print-directory -C "$(ROOT)" $@

else

# Images for containers forbid byte code; without it each worker, and each process of a test, compiles all it imports.
unexport PYTHONDONTWRITEBYTECODE

# Tests wait for processes, servers and disks much of the time: three workers more than there are cores.
CORES := $(shell python3 -c 'import os; print(os.cpu_count() or 2)')
export PYTEST_XDIST_AUTO_NUM_WORKERS ?= $(shell expr $(CORES) + 3)

BIN := .venv/bin
CREATED := .venv/created
RUNS := .venv/installed-embedded
TESTS := .venv/installed-dev
# Code first: pages import it, and it may name a record that has another name now.
GENERATED_CODE := $(addprefix tools/generate_,clients.py sync.py grpc.py)
GENERATORS := $(GENERATED_CODE) $(filter-out $(GENERATED_CODE),$(sort $(wildcard tools/generate_*.py))) tools/api_snapshot.py
BENCH ?= store
ARGS ?=
DATA ?=

help:
	@echo "make demo      agents in several processes work through a folder of documents, live"
	@echo "make test      the test suite                    (ARGS='-k lists' passes arguments on)"
	@echo "make test-all  the same, and conformance on every backend: sync face, redis-py, Cluster, FalkorDB, ..."
	@echo "make quick     what needs no server, in two minutes: for the inner loop"
	@echo "make chaos     break things under load, judge what was promised: 30 minutes  (ARGS=--quick: 3; ARGS=--list)"
	@echo "make lint      ruff: rules and format"
	@echo "make types     mypy, strict"
	@echo "make generate  write the generated files anew: sync face, references, API snapshot"
	@echo "make check     fail if a generated file is stale"
	@echo "make console   build the page that people see, from console/: check, test, bundle"
	@echo "make bench     measure against bare redis-py     (BENCH=coordination, durable; ARGS passes arguments on)"
	@echo "make eval      whether recall finds the right memory: DATA=folder (docs/retrieval.md), ARGS=--quick"
	@echo "make clean     remove .venv and what tools leave behind"

demo: $(RUNS)
	@$(BIN)/sharedmem demo $(ARGS)

test: $(TESTS)
	@$(BIN)/python -m pytest --no-loadscope-reorder -m "not nightly" $(ARGS)

test-all: $(TESTS)
	@$(BIN)/python -m pytest --no-loadscope-reorder $(ARGS)

# Nothing to wait for: a worker for each core.
quick: PYTEST_XDIST_AUTO_NUM_WORKERS = $(CORES)
quick: $(TESTS)
	@$(BIN)/python -m pytest --no-loadscope-reorder -m "not nightly" --quick $(ARGS)

chaos: $(TESTS)
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

lint: $(TESTS)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "make: run $(BIN)/ruff format"; exit 1; }

types: $(TESTS)
	@$(BIN)/mypy --no-error-summary

generate: $(TESTS)
	@set -e; for generator in $(GENERATORS); do $(BIN)/python $$generator --write; done

check: $(TESTS)
	@set -e; for generator in $(GENERATORS); do $(BIN)/python $$generator --check; done

console: $(TESTS)
	@$(BIN)/python tools/build_console.py $(ARGS)

bench: $(TESTS)
	@$(BIN)/python benchmarks/$(BENCH).py $(ARGS)

eval: data $(TESTS)
	@$(BIN)/python benchmarks/retrieval.py --data "$(DATA)" $(ARGS)

.PHONY: data
# Checked before anything is installed.
data:
	@test -d "$(DATA)" || { echo "make: eval needs conversations with questions, which are not part of this repository;" >&2; \
		echo "  docs/retrieval.md says which and where they come from. Then: make eval DATA=folder" >&2; exit 2; }

clean:
	@rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CREATED):
	@GOAL="$(MAKECMDGOALS)" tools/create_venv.sh .venv
	@touch $@

# `make test` installs all that `make demo` needs, so whichever came first is kept.
# `make demo ARGS=--console` serves a page.
RUN_EXTRAS := embedded,server
$(RUNS): pyproject.toml $(CREATED)
	@$(call install,.[$(RUN_EXTRAS)])
	@touch $@

$(TESTS): pyproject.toml $(CREATED)
	@$(call install,.[dev])
	@# redis-om brings stubs of redis-py 4, which mypy would read instead of the types of the redis-py that is here.
	@$(BIN)/python -m pip uninstall --quiet --yes types-redis
	@touch $(RUNS) $@

# A newer pip chooses versions up to half a minute sooner than that of Python 3.11, which will do if it cannot be had.
# pip compiles on one core, hence compileall; a file that cannot be compiled is one that its package never imports.
define install
echo "installing sharedmem in $(ROOT)/.venv ..." >&2; \
$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip 2>/dev/null || true; \
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '$(1)' || { \
	echo "make: '$(1)' could not be installed; pip says why above." >&2; \
	echo "  Needed: a package index that pip can reach (see pip config list) and room on the disk." >&2; \
	echo "  A broken environment is removed by: make clean" >&2; \
	exit 1; }; \
$(BIN)/python -m compileall -qq --workers 0 .venv/lib || true
endef

endif
