# Python 3.11 or newer and make are all that is needed; everything else is installed into .venv from requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
SYSTEM := bubblewrap tmux

.PHONY: help setup demo test test-deps check bench cover-own lock clean

help:
	@echo "make setup      install into .venv; then .venv/bin/endstop"
	@echo "make demo       see it work, without a key or a network"
	@echo "make test       every test"
	@echo "make test-deps  what tests need from the operating system ($(SYSTEM))"
	@echo "make check      lint, format, types, layers"
	@echo "make bench      what a turn costs"
	@echo "make cover-own  the core, covered by its own tests alone"
	@echo "make lock       renew requirements.lock"

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "endstop needs Python 3.11 or newer: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "no venv could be made (on Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

demo: setup
	$(BIN)/endstop demo

# Four workers even on two cores: many tests wait for processes, so two left more than half of the machine idle.
test: setup
	$(BIN)/python -m pytest -q -n 4

# Harmless where nothing is missing, or where nothing may be installed.
test-deps:
	@missing=""; command -v bwrap >/dev/null || missing="bubblewrap"; \
	command -v tmux >/dev/null || missing="$$missing tmux"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	sudo=""; [ "$$(id -u)" = 0 ] || sudo="sudo -n"; \
	if ! command -v apt-get >/dev/null || ! $$sudo true 2>/dev/null; then echo "not installed:" $$missing; exit 0; fi; \
	$$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends $$missing

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src
	$(BIN)/lint-imports --no-logo

bench: setup
	$(BIN)/python bench/run.py

cover-own: setup
	$(BIN)/coverage run --data-file=.coverage.own --source=src/endstop/core -m pytest -q tests/core
	$(BIN)/coverage report --data-file=.coverage.own --fail-under=95

lock: setup
	$(BIN)/pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --all-extras --group dev --no-emit-index-url --custom-compile-command "make lock" -o requirements.lock

clean:
	rm -rf .venv build dist .coverage* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
