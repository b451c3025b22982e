# Everything lives in .venv; what was installed is installed again only when pyproject.toml or setup.py changed.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
# The four folders as the one package they install as: mypy and import-linter do not follow an editable install.
TREE := build/types
ROUNDS ?= 20

.PHONY: help demo test test-fast lint format types imports soak bench clean tree

help: ## what there is to make
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12

demo: $(VENV)/.demo ## the main job on real flights, from start to summary
	@$(BIN)/stream-tpp demo

test: lint types imports test-fast ## every check and every test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

test-fast: $(VENV)/.test ## the tests that take seconds and need no broker
	$(BIN)/python -m stream_tpp.sampling.native
	$(BIN)/python -m pytest -n auto -m "not slow"

lint: $(VENV)/.test ## ruff: faults and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.test ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.test tree ## mypy --strict over the whole namespace
	cd $(TREE) && ../../$(BIN)/mypy --cache-dir ../../.mypy_cache -p stream_tpp

imports: $(VENV)/.test tree ## kernels <- engine <- operators <- topologies <- command line
	cd $(TREE) && ../../$(BIN)/lint-imports --no-cache

soak: $(VENV)/.test ## the slow tests again and again (ROUNDS=20) until one fails
	@for round in $$(seq $(ROUNDS)); do echo "round $$round of $(ROUNDS)"; STREAM_TPP_SOAK=1 $(BIN)/python -m pytest -m slow -x -q --timeout=1500; done

bench: $(VENV)/.demo ## how fast the sampler is on this machine
	@$(BIN)/stream-tpp bench sampler

clean: ## everything that was made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

tree:
	@rm -rf $(TREE) && mkdir -p $(TREE)/stream_tpp
	@ln -s ../../pyproject.toml $(TREE)/pyproject.toml
	@ln -s $(addprefix ../../../,$(wildcard stream_tpp/*) kernels operators topologies) $(TREE)/stream_tpp

$(BIN)/python:
	@for python in $${PYTHON:-python3.12 python3.13 python3.11 python3}; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$$python makes $(VENV)"; $$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; exit 0; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer with venv was found: install one (Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3." >&2; \
	exit 1

$(VENV)/.demo: pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml setup.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.demo
