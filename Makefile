# Two commands for newcomers: `make serve` and `make test`. Both work in a fresh checkout and keep what they
# install in .venv; run again, they only do what is new.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
SOURCES := $(shell find csrc kbcore planner/kbplanner plugins/kbplugins server/kbserver -name '*.py' -o -name '*.[ch]' -o -name '*.lark') \
           pyproject.toml setup.py

.PHONY: serve test lint clean

serve: $(VENV)/.installed
	$(BIN)/kbcore serve $(ARGS)

test: $(VENV)/.tox
	$(BIN)/tox run-parallel --parallel auto --parallel-live $(if $(ENVS),-e $(ENVS),)

lint: $(VENV)/.tox
	$(BIN)/tox run -e lint,typing,imports

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "kbcore needs Python 3.10 or newer: apt-get install python3 python3-venv python3-dev"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "kbcore needs the venv module: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: $(BIN)/python $(SOURCES)
	@$(BIN)/python setup.py --check-tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check .
	@touch $@

$(VENV)/.tox: $(BIN)/python
	@$(BIN)/python setup.py --check-tools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "tox>=4.20"
	@touch $@

clean:
	rm -rf $(VENV) .tox build *.egg-info
