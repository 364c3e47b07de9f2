# Two commands are all a newcomer needs: `make demo` and `make test`. Both make the environment they need.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo demo-flower test test-integration docs check format bench bench-engines bench-engines-gpu bench-startup bench-bytes clean

help:
	@echo "make demo    set up, fetch MNIST, train four algorithms, print one table and the path of a page"
	@echo "make test    set up, run the whole test suite (left out with MARKS='not slow': the slow part)"
	@echo "make docs    set up, build the documentation into docs/_build/html"
	@echo "make demo-flower        a federation with Flower: in its simulation, then as processes with TLS and keys on this machine"
	@echo "make test-integration   Flower, Ray, NVFlare and pfl-research, each in an environment of its own"
	@echo "make check   format, lint and types"
	@echo "make format  put files into the project's format"
	@echo "make bench   time aggregation, import, client rounds and data"
	@echo "make bench-engines      time engines against a naive loop, Flower and pfl-research (bench-engines-gpu: on a GPU, no peers)"
	@echo "make bench-bytes        bytes of a round on a cluster: the Ray engine and Flower's simulation"
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

# Flower, Ray, NVFlare and pfl-research want versions of their own, so each has an environment of its own.
FRAMEWORKS := flower ray nvflare pfl

.venvs/test-%/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(@D)/bin/python -m pip install --quiet --editable '.[$*,demo]' pytest
	@touch $@

test-integration: $(FRAMEWORKS:%=.venvs/test-%/.ready)
	@for name in $(FRAMEWORKS); do \
		.venvs/test-$$name/bin/python -m pytest -q tests/integration/test_$$name*.py || exit 1; \
	done

demo-flower: .venvs/test-flower/.ready
	.venvs/test-flower/bin/python examples/flower/simulate.py
	.venvs/test-flower/bin/python examples/flower/deploy.py

bench-bytes: .venvs/test-flower/.ready
	.venvs/test-flower/bin/python benchmarks/bytes.py $(BENCH)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
