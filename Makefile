# Everything a person types. `make` alone explains it.
# The environment is .venv, made from requirements/*.lock (uv when present, else venv and pip); PYTHON= chooses another Python.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first Python that is new enough, as a path: `python3` itself may be a slow shim. Expanded only when a recipe needs it.
find_python = $(or $(PYTHON),$(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$candidate" -c 'import sys; sys.version_info < (3, 11) and sys.exit(1); print(sys.executable)' 2>/dev/null && break; \
	done),python3)
bootstrap = $(find_python) scripts/bootstrap.py
python := .venv/bin/python
sources := pyproject.toml scripts/bootstrap.py

.PHONY: help
help:  ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.venv/.aboveboard-%: requirements/%.lock $(sources)
	@$(bootstrap) $*

.PHONY: demo
demo: .venv/.aboveboard-core  ## vet three Markdown packages, one with a planted probe, and show what it did
	@$(python) -m aboveboard demo $(ARGS)

.PHONY: test
test: .venv/.aboveboard-dev  ## run the tests, as root also a second time as an ordinary user
	@scripts/test.sh $(ARGS)

.PHONY: test-as-user
test-as-user:  ## run the tests as an ordinary user, in a copy of the checkout (needs root)
	@scripts/test-as-user.sh $(ARGS)

.PHONY: lint
lint: .venv/.aboveboard-dev  ## ruff and mypy --strict
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy

.PHONY: format
format: .venv/.aboveboard-dev  ## let ruff put the code into shape
	$(python) -m ruff check --fix .
	$(python) -m ruff format .

.PHONY: bench
bench: .venv/.aboveboard-dev .venv/.aboveboard-bench  ## measure speed and false alarms
	@$(python) benchmarks/run.py $(ARGS)

.PHONY: fuzz
fuzz: .venv/.aboveboard-dev .venv/.aboveboard-fuzz  ## fuzz the parsers of hostile bytes (SECONDS_EACH=30)
	@$(python) scripts/fuzz.py --seconds $(or $(SECONDS_EACH),30) $(ARGS)

.PHONY: docs
docs: .venv/.aboveboard-docs  ## build the documentation into site/, every warning an error
	@NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --strict

.PHONY: lock
lock:  ## write requirements/*.lock again from pyproject.toml (needs uv)
	@scripts/lock.sh

.PHONY: clean
clean:  ## remove everything that was made
	rm -rf .venv site dist .hypothesis .mypy_cache .pytest_cache .ruff_cache bench-results
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
