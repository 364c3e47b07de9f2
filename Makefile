# Two commands are all a newcomer needs: `make demo` and `make test`. Both make the environment they need.

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
PIP := -m pip install --quiet --no-compile --disable-pip-version-check
DEMO := $(VENV)/.demo
DEV := $(VENV)/.dev
TOOLS := .venvs/tools/.ready
FRAMEWORKS := flower ray nvflare pfl transformers

.PHONY: help demo demo-flower test test-all test-integration $(FRAMEWORKS:%=test-%) docs check format \
	lock audit archive bench bench-smoke bench-engines bench-engines-gpu bench-target bench-startup bench-bytes clean

help:
	@echo "make demo    set up, fetch MNIST, train four algorithms, print one table and the path of a page"
	@echo "make test    set up, run the tests (a few minutes on two cores)"
	@echo "make test-all           the tests, the slow ones too, in Chromium where it is installed, test-integration, and tests/mutations.py"
	@echo "make test-integration   Flower, Ray, NVFlare, pfl-research and Hugging Face models, each in an environment of its own (make test-ray: one of them)"
	@echo "make docs    set up, build the documentation into docs/_build/html"
	@echo "make check   format, lint and types"
	@echo "make format  put files into the project's format"
	@echo "make lock    write requirements.lock: the versions of constraints.txt with the hashes of their files (make LOCKED=1 test installs by it)"
	@echo "make audit   look for known holes in these versions (needs a network)"
	@echo "make demo-flower        a federation with Flower: in its simulation, then as processes with TLS and keys on this machine"
	@echo "make archive            dist/accord-replication.tar.gz: results, runs and verdicts on the papers as last committed, to be cited"
	@echo "make bench   time aggregation, import, client rounds, threads and data"
	@echo "make bench-smoke        20 seconds: a few steps against a naive loop, masked against plain averaging, as ratios"
	@echo "make bench-engines      time engines against a naive loop, Flower and pfl-research (bench-engines-gpu: on a GPU, no peers)"
	@echo "make bench-target       time to 97 % on MNIST with 100 label-skewed clients: accord, a naive loop, Flower and pfl-research"
	@echo "make bench-bytes        bytes of a round on a cluster: the Ray engine and Flower's simulation"
	@echo "make bench-startup      time to the first round, and memory with more and more clients"

# Modules are not compiled while they are installed but when they are first imported: most never are.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "accord needs Python 3.11 or newer, and $(PYTHON) is " \
		+ sys.version.split()[0] + ": name another one, as in make PYTHON=python3.12")'
	$(PYTHON) -m venv $(1)
endef

# LOCKED=1: every dependency of the tests but torch, whose builds differ from machine to machine, is installed by its hash. pip checks hashes of all files that it
# installs or of none: so torch comes first, and the rest without a look at what it depends on. The lock is for CPython 3.11 to 3.13 on Linux and macOS.
define by_hash
	$(BIN)/python $(PIP) --constraint constraints.txt torch
	$(BIN)/python $(PIP) --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/python $(PIP) --no-deps --constraint constraints.txt --editable .
endef

$(DEMO): pyproject.toml constraints.txt
	$(call environment,$(VENV))
	$(if $(LOCKED),$(by_hash),$(BIN)/python $(PIP) --constraint constraints.txt --editable .)
	@touch $@

$(DEV): $(DEMO)
	$(if $(LOCKED),,$(BIN)/python $(PIP) --constraint constraints.txt --editable '.[dev]')
	@touch $@

# Both need a network, and programs in an environment of their own.
$(TOOLS):
	$(call environment,.venvs/tools)
	.venvs/tools/bin/python $(PIP) uv pip-audit
	@touch $@

lock: $(TOOLS)
	(echo "# The versions of constraints.txt, all but torch's and the build's, with the hashes of their files for every platform: make lock writes this, make LOCKED=1 installs by it."; \
		grep -v -e '^torch==' -e '^hatchling==' constraints.txt | .venvs/tools/bin/uv pip compile - --quiet --no-deps --generate-hashes --universal --python-version 3.11.7 \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links) > requirements.lock.part
	mv requirements.lock.part requirements.lock

audit: $(TOOLS)
	.venvs/tools/bin/pip-audit --strict --disable-pip --no-deps --requirement requirements.lock

# Flower, Ray, NVFlare, pfl-research and transformers want versions of their own, so each has an environment of its own. torch comes first and is pinned: a
# later, looser request for it then finds it there.
.venvs/test-%/.ready: pyproject.toml constraints.txt
	$(call environment,$(@D))
	$(@D)/bin/python $(PIP) --constraint constraints.txt torch
	$(@D)/bin/python $(PIP) --editable '.[$*]' pytest
	@touch $@

demo: $(DEMO)
	$(BIN)/accord demo

test: $(DEV)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" --durations=10 --cov=accord --cov-report=term-missing:skip-covered --cov-fail-under=90

test-all: $(DEV)
	$(MAKE) test-integration ALL=1
	$(BIN)/python -m pytest -n auto --dist worksteal --durations=10
	$(BIN)/python tests/mutations.py

test-integration: $(FRAMEWORKS:%=test-%)

$(FRAMEWORKS:%=test-%): test-%: .venvs/test-%/.ready
	.venvs/test-$*/bin/python -m pytest -q --durations=10 $(if $(ALL),,-m "not long") tests/integration/test_$**.py

demo-flower: .venvs/test-flower/.ready
	.venvs/test-flower/bin/python examples/flower/simulate.py
	.venvs/test-flower/bin/python examples/flower/deploy.py

docs: $(DEV)
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

archive:
	mkdir -p dist
	git archive --prefix=accord-replication/ -o dist/accord-replication.tar.gz HEAD replication CITATION.cff LICENSE \
		docs/explanation/judge.md docs/how-to/should-i-use-a-mask.md src/accord/studies/published.csv src/accord/studies/files
	sha256sum dist/accord-replication.tar.gz

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEMO)
	$(BIN)/python benchmarks/core.py
	$(BIN)/python benchmarks/threads.py
	$(BIN)/python benchmarks/data.py

bench-smoke: $(DEMO)
	$(BIN)/python benchmarks/smoke.py $(BENCH)

bench-engines: $(DEMO)
	PYTHON=$(PYTHON) benchmarks/peers.sh .venvs
	$(BIN)/python benchmarks/engines.py $(BENCH)

bench-target: $(DEMO)
	PYTHON=$(PYTHON) benchmarks/peers.sh .venvs
	$(BIN)/python benchmarks/target.py $(BENCH)

bench-engines-gpu: $(DEMO)
	$(BIN)/python benchmarks/engines.py --device cuda $(BENCH)

bench-startup: $(DEMO)
	$(BIN)/python benchmarks/startup.py $(BENCH)

bench-bytes: .venvs/test-flower/.ready
	.venvs/test-flower/bin/python benchmarks/bytes.py $(BENCH)

clean:
	rm -rf $(VENV) .venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* docs/_build
