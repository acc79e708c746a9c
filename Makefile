# Needs git, make and Python 3.11 or newer; all else goes into $(VENV).
PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
BIN := $(VENV)/bin
DEMOS = $(wildcard demos/*.ipynb)
BENCHMARKS = $(wildcard benchmarks/[!_]*.py)

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # each kernel of the tests would compile the package anew
.DELETE_ON_ERROR:
.PHONY: help demo demos lab test colab lint format bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.with-demo ## run demos/quickstart.ipynb in a real kernel; findings and timings in the terminal
	@$(BIN)/python tools/run_demo.py demos/quickstart.ipynb

demos: $(VENV)/.with-demo,frameworks $(VENV)/.with-spark ## run every notebook of demos/
	@set -e; for notebook in $(DEMOS); do $(BIN)/python tools/run_demo.py $$notebook; done

lab: $(VENV)/.with-lab,frameworks ## open the demos in JupyterLab
	@$(BIN)/jupyter lab demos

test: $(VENV)/.with-dev $(VENV)/.with-spark ## the whole test suite, in a real browser too
	@tools/get_browser.sh $(BIN)/python
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

# Left out: what needs a browser or JupyterLab, which Colab shows nothing of; the frameworks, which ask for newer packages;
# what reads and writes text alone, or puts back what Python keeps, and so does the same on every stack; and of the
# corrections all but the table that proves each kind of them.
colab: export PIP_CONSTRAINT = tools/colab.txt
colab: $(VENV)/.with-test ## the test suite on the packages of Google Colab (tools/colab.txt); PYTHON: 3.13
	@$(BIN)/python -m pytest $(addprefix --ignore=tests/,browser frameworks demos source render rules trial) $(patsubst %,--ignore=%,$(filter-out %/test_kinds.py,$(wildcard tests/fixes/test_*.py))) $(PYTEST_ARGS)

lint: $(VENV)/.with-dev ## ruff and mypy
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

format: $(VENV)/.with-dev ## let ruff mend what it can
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

bench: $(VENV)/.with-dev ## the benchmarks
	@set -e; for script in $(BENCHMARKS); do $(BIN)/python $$script; done

clean: ## remove the environments and everything built
	rm -rf $(VENV) .venv-newest .venv-colab build dist .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A venv whose making was cut short has no stamp, and is made anew.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "jitmagic needs Python 3.11 or newer, and '$(PYTHON)' is not: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# The version is in the package's door, the installed metadata has to follow it.
$(VENV)/.with-%: $(VENV)/.made pyproject.toml jitmagic/__init__.py
	@echo "installing jitmagic[$*] into $(VENV) (minutes, the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

# spark-snn needs Python 3.12, asks for an older jax and brings a graph editor: it runs with the newest jax and without its dependencies.
$(VENV)/.with-spark: $(VENV)/.made
	@! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))' || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'spark-snn>=1.2'
	@touch $@
