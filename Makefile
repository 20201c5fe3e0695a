# For newcomers: `make serve` runs a server, `make test` runs a representative part of the tests. Both work in a fresh
# checkout and keep what they install in .venv; run again, they only do what is new.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BUILT  := $(shell find csrc -name '*.[ch]' -o -name '*.py') pyproject.toml setup.py
ENVS   ?= lint,typing,imports,bandit,generated,docs,verify,faults,py310,py311,py312,py313,protocols,contract,asan

.PHONY: serve test test-all lint clean

serve: $(VENV)/.installed
	$(BIN)/kbcore serve $(ARGS)

test: $(VENV)/.test-tools
	@echo "Running a representative part of the tests with $$($(BIN)/python -V), a few examples for each property."
	@echo "Left out, and run by 'make test-all': other interpreters, all examples, killed processes, full disks, live"
	@echo "protocol clients, generated requests, sanitizers, type and style checks."
	KB_TEST_EXAMPLES=few $(BIN)/python -m pytest -q -n auto --dist worksteal -m "not slow and not crash and not thorough" \
	    tests/meta tests/planner tests/engine tests/core tests/property tests/plugins tests/server tests/durability $(ARGS)

test-all: $(VENV)/.tox
	$(BIN)/tox run-parallel --parallel auto --parallel-no-spinner $(if $(ENVS),-e $(ENVS),)

lint: $(VENV)/.tox
	$(BIN)/tox run -e lint,typing,imports

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "kbcore needs Python 3.10 or newer: apt-get install python3 python3-venv python3-dev"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "kbcore needs the venv module: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: $(BIN)/python $(BUILT)
	@$(BIN)/python setup.py --check-tools
	@echo "Installing kbcore and what it needs into $(VENV), and building its C engine: about a minute, once."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test-tools: $(VENV)/.installed
	@echo "Installing the test tools into $(VENV)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,postgres]"
	@touch $@

$(VENV)/.tox: $(BIN)/python
	@$(BIN)/python setup.py --check-tools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "tox>=4.20"
	@touch $@

clean:
	rm -rf $(VENV) .tox build *.egg-info
