# Every target sets up what it needs. Only Python 3.11-3.13 with pip is expected: `make demo`, `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
DEMO ?= inbounds train reacher --steps 50000 --environments 4 --aram.hidden 128 128

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-slow lint format docs bench peers bundle wheel clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(VENV)/.runtime ## train ARAM on Reacher and report
	PATH="$(abspath $(BIN)):$$PATH" $(DEMO)
	@echo "      (the command is in $(BIN); to have it in this terminal: . $(BIN)/activate)"

# Workers take tests from each other's ends, so that neither waits for a long file, and both keep files together.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations 15
# Tests start many short programs. They load compiled modules even where the shell forbids writing these.
test test-slow: export PYTHONDONTWRITEBYTECODE =

test: $(VENV)/.dev ## run the quick tests, a slice of every property
	$(PYTEST) -m "not slow"

test-slow: $(VENV)/.slow docs ## run the slow tests, the examples, the docs and the built wheel
	browser="$$($(BIN)/python scripts/find_browser.py $(VENV)/browser)" && INBOUNDS_BROWSER="$$browser" \
	$(PYTEST) -m slow --timeout 1200

lint: $(VENV)/.dev ## check format, style, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports
	$(BIN)/python scripts/reading_list.py --check

format: $(VENV)/.dev ## rewrite the sources in the common format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.docs ## build the documentation, warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

bench: $(VENV)/.dev ## run the benchmarks and print their tables
	$(BIN)/python -m benchmarks.run $(BENCH)

peers: ## install the libraries we compare with (.peers/, heavy: it says how heavy first)
	$(PYTHON) scripts/make_peers.py

bundle: $(VENV)/.runtime ## collect what an offline GPU machine lacks into bundle/site.tar.gz
	$(BIN)/python scripts/make_bundle.py $(BUNDLE)

wheel: $(VENV)/.dev ## build the wheel and try it outside the checkout
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/python scripts/try_wheel.py dist

clean: ## remove what was built (not the runs)
	rm -rf $(VENV) .peers bundle build dist docs/_build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# One virtual environment, filled in steps; each stamp is newer than the pins that it installed.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; (3, 11) <= sys.version_info[:2] <= (3, 13) or sys.exit("inbounds needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet

$(VENV)/.runtime: requirements/runtime.txt requirements/build.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing the pinned packages (about 250 MB to download the first time) ..."
	$(PIP) -r requirements/runtime.txt -r requirements/build.txt
	$(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	$(PIP) -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.dev
	$(PIP) -r requirements/docs.txt
	@touch $@

$(VENV)/.envs: requirements/envs.txt $(VENV)/.dev
	$(PIP) -r requirements/envs.txt
	@touch $@

$(VENV)/.slow: requirements/slow.txt $(VENV)/.envs
	$(PIP) -r requirements/slow.txt
	@touch $@
