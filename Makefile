# `make` lists the targets. Each sets up what it needs in .venv; nothing is installed elsewhere.
# 3.11 is what the project is tested with most; else any newer one will do.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCKED := $(PIP) install --require-hashes --no-deps --only-binary :all: --no-compile
# uv needs a fifth of pip's time. What it unpacks it links into .venv; it asks the index that pip is told to ask.
UV := UV_DEFAULT_INDEX="$${PIP_INDEX_URL:-$$($(BIN)/pip config get global.index-url 2> /dev/null)}" \
	$(BIN)/uv pip install --quiet --python $(BIN)/python --cache-dir $(VENV)/unpacked

# Where the environment says otherwise, every process of the tests would compile all sources anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo serve check format warm test test-all test-slow fuzz bench docs dist lock clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(READY): pyproject.toml $(wildcard lock/*.txt)
	@$(or $(PYTHON),false) --version > /dev/null 2>&1 || { echo "$(or $(PYTHON),Python 3.11 or newer) is not installed; name another by make PYTHON=…" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' lock/dev.txt | $(LOCKED) -r /dev/stdin
	{ $(UV) --require-hashes --no-deps --only-binary :all: -r lock/dev.txt || $(LOCKED) -r lock/dev.txt; } & others=$$!; \
	{ $(LOCKED) -r lock/torch-cpu.txt 2> /dev/null || $(LOCKED) -r lock/torch.txt; }; torch=$$?; \
	wait $$others && exit $$torch  # at the same time: torch alone is a fifth of all that is unpacked
	@rm -rf $(VENV)/unpacked
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

install: $(READY)  ## set up .venv with everything for development

demo: $(READY)  ## train, index, search, measure on embedded digits; writes demo/index.html
	@$(BIN)/dmuh demo --out demo

serve: $(READY)  ## the demo, then its page at http://127.0.0.1:8000
	@$(BIN)/dmuh demo --out demo
	@$(BIN)/dmuh serve demo/run --index demo/index

check: $(READY)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A worker that has finished takes tests from another one. What a file's tests share may then be made twice, which
# costs less than a core that waits. WORKERS=2 makes so many workers, instead of two more than cores.
PYTEST := $(BIN)/pytest -n $(or $(WORKERS),auto) --dist worksteal

test: $(READY)  ## the tests of what is computed, written and said, on all cores: 3 minutes on two
	$(PYTEST) -m 'not slow and not long'

test-all: warm $(VENV)/.compiled  ## all tests but the slow: also kills, browser, README, Milvus, every setting; 8 minutes on two cores
	$(PYTEST)

# Else every service that the tests start compiles the same kernels, and is ended meanwhile.
warm: $(READY)
	@$(BIN)/dmuh warm > /dev/null

# Else every worker of the tests compiles what it imports and rewrites the asserts of all tests. This needs one core,
# while make --jobs warms up on the other.
$(VENV)/.compiled: $(READY)
	@$(BIN)/pytest --collect-only --quiet > /dev/null || true  # what is wrong is said by the tests
	@touch $@

test-slow: $(READY)  ## the slow tests, among them those on real images; DMUH_DATA names their folder
	$(BIN)/pytest -m slow

fuzz: $(READY)  ## damage every kind of file that dmuh writes, 2,000 times each; TIMES=… SEED=… change that
	@cd tests && ../$(BIN)/python fuzz_files.py $(or $(TIMES),2000) $(or $(SEED),0)

bench: $(READY)  ## the measurements behind every claim of speed; SAVE=1 keeps them in benchmarks/results
	@export SAVE=$(SAVE); for script in evaluate search first_search encoding step reading large_set catalogue hashes serve attack killed milvus duplicates texts text_search; do echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

docs: $(READY)  ## the docs site, in site/; warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html, or with its search: $(BIN)/python -m http.server --directory site"

dist: $(READY)  ## sdist and wheel in dist/, checked and tried in an empty environment
	$(BIN)/python .ci/dist.py

lock: $(READY)  ## choose versions anew where pyproject.toml asks for it; all of them by make lock UPGRADE=--upgrade
	$(BIN)/python .ci/lock.py $(UPGRADE)

clean:  ## remove what the targets made
	rm -rf $(VENV) demo build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
