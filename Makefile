# `make train` and `make test` set everything up for themselves: they need Python 3.11 to 3.13
# (choose one with PYTHON=python3.12), git and make. `make train GPU=1` installs the CUDA build.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# With GPU=1 the mark has another name, so that a later GPU=1 installs what is missing.
INSTALLED := $(VENV)/.installed$(if $(GPU),-gpu)

# One more than cores: some tests wait for a clock.
TESTERS = $(shell $(PYTHON) -c "import os; print(min(4, os.cpu_count()) + 1)")

.PHONY: train test lint docs clean

train: $(INSTALLED)
	$(BIN)/ginkgo convert data/sample -o records/sample --val-fraction 0.2 --overwrite
	rm -rf runs/sample
	$(BIN)/ginkgo train records/sample/train --run sample --init pretrained --heads policy value \
	    --best-by value --min-ply 30 --batch-size 128 --steps 750 --learning-rate 4e-4 \
	    --weight-decay 0.05 --ema 0.995 --eval-every 150 --val-positions 6000

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile --no-loadscope-reorder

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "error: ginkgo needs Python 3.11 to 3.13, this is " + sys.version.split()[0] + "; choose another with make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

$(INSTALLED): requirements.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
ifdef GPU
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "tensorflow[and-cuda]==$$(sed -n 's/^tensorflow==//p' requirements.txt)"
endif
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
