# `make` lists the targets. Each sets up what it needs in .venv; nothing is installed elsewhere.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help install demo serve check format test test-slow bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) is not installed; name another by make PYTHON=…" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
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

test: $(READY)  ## the tests
	$(BIN)/pytest

test-slow: $(READY)  ## the tests on real images; DMUH_DATA names their folder
	$(BIN)/pytest -m slow

bench: $(READY)  ## the measurements behind every claim of speed
	@for script in evaluate search encoding step reading large_set serve killed milvus; do echo "== $$script"; $(BIN)/python benchmarks/$$script.py || exit 1; done

clean:  ## remove what the targets made
	rm -rf $(VENV) demo build .pytest_cache .mypy_cache .ruff_cache .hypothesis
