# For newcomers: `make serve` runs a server, `make test` runs a representative part of the tests. Both work in a fresh
# checkout and keep what they install in .venv; run again, they only do what is new.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BUILT  := $(shell find csrc -name '*.[ch]' -o -name '*.py') pyproject.toml clients/python/pyproject.toml setup.py
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# What a release or a download has put there; without a compiler it is installed in place of this tree.
WHEEL  := $(wildcard dist/kbcore-$(VERSION)-*.whl)
# The longest first: two run at a time.
ENVS   ?= full,browser,extras-spark,static,py310,py313,asan,release
# No test here starts a process, except one server for each worker.
QUICK  := $(addprefix tests/,planner engine contract core/context core/memory core/scopes core/transactions \
          plugins/test_storage_wal.py property/test_programs.py)

.PHONY: help serve test test-changed test-all console docs release lint clean

help:
	@echo "make serve         install kbcore and run a server; ARGS='--port 9400' adds options"
	@echo "make test          install the test tools and run a representative part of the tests"
	@echo "make test-changed  run the tests of what differs from HEAD, or from BASE=..."
	@echo "make test-all      run all tests, under every interpreter that is here"
	@echo "make lint          check style, types and imports"
	@echo "make console       compile the console for browsers"
	@echo "make docs          build the documentation and serve it"
	@echo "make release       build the files of a release"
	@echo "make clean         remove what the others have installed"

serve: $(VENV)/.installed
	@echo "Starting the server; press Ctrl+C to stop it."
	@$(BIN)/kbcore serve $(ARGS)

test: $(VENV)/.test-tools
	@echo "Running a representative part of the tests with $$($(BIN)/python -V), a few examples for each property:"
	@echo "the language, the engine, the core in part, and every statement of the HTTP interface."
	@echo "Left out, and run by 'make test-all': other interpreters, the server, most of the core and of the plugins, property"
	@echo "tests, clients, attacks, killed processes, full disks, sanitizers, type and style checks. 'pytest -n auto' runs most."
	KB_TEST_EXAMPLES=few $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $(QUICK) $(ARGS)

# What the environment lacks, such as a browser, is left out and named.
test-changed: BASE ?= HEAD
test-changed: $(VENV)/.test-tools
	KB_TEST_EXAMPLES=some $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder $$($(BIN)/python tests/support/changed.py $(BASE)) $(ARGS)

test-all: $(VENV)/.tox
	$(BIN)/tox run-parallel --parallel auto --parallel-no-spinner $(if $(ENVS),-e $(ENVS),) $(ARGS)

# Compile the console. Needs Node 20 and npm; servers send the compiled files, which are part of the repository.
console: $(VENV)/.installed
	@cd server/console && npm ci --silent
	@$(BIN)/python docs/generate.py --openapi > server/console/openapi.json
	@cd server/console && npm run --silent types -- openapi.json && npm run --silent build

# Build the documentation site, and serve it with its pages built again as they change.
docs: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "zensical>=0.0.70" --editable ./clients/python --editable ".[cli]"
	@$(BIN)/zensical build --strict
	@$(BIN)/zensical serve $(ARGS)

# Build the files of a release into dist, and check them.
release: $(VENV)/.tox
	@$(BIN)/tox run -q -e release -- $(CURDIR)/dist
	@echo "The files of the release are in dist; SHA256SUMS lists them."

lint: $(VENV)/.tox
	$(BIN)/tox run -e static

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "$(PYTHON) is not installed; on Debian or Ubuntu run: apt-get install python3 python3-venv python3-dev"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "kbcore needs Python 3.10 or newer, and $(PYTHON) is older; name another one: make PYTHON=python3.12"; exit 1; }
	@echo "Creating the virtual environment $(VENV)."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "The Python module venv is missing; on Debian or Ubuntu run: apt-get install python3-venv"; exit 1; }

$(VENV)/.installed: $(BIN)/python $(BUILT)
	@if [ -z "$(WHEEL)" ] || $(BIN)/python setup.py --check-tools 2>/dev/null; then \
	    $(BIN)/python setup.py --check-tools || exit 1; \
	    echo "Installing kbcore into $(VENV): downloads Python packages and builds the C engine, about a minute."; \
	    set -- --editable ./clients/python --editable .; \
	else \
	    echo "Installing kbcore into $(VENV) from the wheels in dist, because a compiler or the Python headers are missing."; \
	    set -- --find-links dist --only-binary kbcore,kbcore-client "kbcore==$(VERSION)"; \
	fi; \
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off "$$@" || { \
	    echo "The installation failed; the lines above say why."; exit 1; }
	@touch $@

$(VENV)/.test-tools: $(VENV)/.installed
	@echo "Installing the test tools into $(VENV)."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ./clients/python --editable ".[test,cli,lsp,oauth,postgres,bulk]"
	@touch $@

$(VENV)/.tox: $(BIN)/python
	@$(BIN)/python setup.py --check-tools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "tox>=4.20"
	@touch $@

clean:
	rm -rf $(VENV) .tox build *.egg-info
