# Two commands are all a newcomer needs: `make demo` and `make test`. Both make the environment they need.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test test-integration docs check format bench bench-engines bench-engines-gpu bench-startup clean

help:
	@echo "make demo    set up, fetch MNIST, train four algorithms, print one table"
	@echo "make test    set up, run the whole test suite (left out with MARKS='not slow': the slow part)"
	@echo "make docs    set up, build the documentation into docs/_build/html"
	@echo "make test-integration   Flower, Ray, NVFlare and pfl-research, each in an environment of its own"
	@echo "make check   format, lint and types"
	@echo "make format  put files into the project's format"
	@echo "make bench   time aggregation, import, client rounds and data"
	@echo "make bench-engines      time engines against a naive loop, Flower and pfl-research (bench-engines-gpu: on a GPU, no peers)"
	@echo "make bench-startup      time to the first round, and memory with more and more clients"

# torch is installed first and pinned: a later, looser request for it then finds it there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)
	$(BIN)/accord demo

test: $(READY)
	$(BIN)/python -m pytest -n auto --cov=accord --cov-report=term-missing:skip-covered --cov-fail-under=90 $(if $(MARKS),-m "$(MARKS)")

docs: $(READY)
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Flower, Ray, NVFlare and pfl-research want versions of their own, so each is tested in an environment of its own.
test-integration:
	@for name in flower ray nvflare pfl; do \
		$(PYTHON) -m venv .venvs/test-$$name && \
		.venvs/test-$$name/bin/python -m pip install --quiet --constraint constraints.txt torch && \
		.venvs/test-$$name/bin/python -m pip install --quiet --editable ".[$$name,demo]" pytest && \
		.venvs/test-$$name/bin/python -m pytest -q tests/integration/test_$$name*.py || exit 1; \
	done

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/data.py

bench-engines: $(READY)
	PYTHON=$(PYTHON) benchmarks/peers.sh .venvs
	$(BIN)/python benchmarks/engines.py $(BENCH)

bench-engines-gpu: $(READY)
	$(BIN)/python benchmarks/engines.py --device cuda $(BENCH)

bench-startup: $(READY)
	$(BIN)/python benchmarks/startup.py $(BENCH)

clean:
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage docs/_build
