PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
# One for each interpreter.
NUMPY2 := .venv-numpy2-$(notdir $(PYTHON))
LOWEST := .venv-lowest
NEWEST := .venv-newest
STAMP := $(VENV)/.ready
DOCS_STAMP := $(VENV)/.ready-docs
# Of a file in the repository. Pictures are the largest.
MAX_KB := 400
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

PROGRAMS := $(addprefix tests/integration/,test_examples.py test_how_to.py test_notebooks.py \
	test_command_line.py)

# The same for each run of a commit. In a clone without history it is always the same.
SHARE ?= $(shell echo $$(($$(git rev-list --count HEAD 2>/dev/null || echo 0) % 100 + 1)))/100

# If the caller names PYTHON, only that interpreter is tried; the default has alternatives.
ifeq ($(origin PYTHON),file)
PYTHONS := $(PYTHON) python3.12 python3.11 python3.10
else
PYTHONS := $(PYTHON)
endif

# Prints on one line why an interpreter cannot be used; Debian ships venv without ensurepip.
USABLE := import sys; v = sys.version_info[:2]; \
	(3, 10) <= v <= (3, 12) or sys.exit("is Python %d.%d" % v); \
	from importlib.util import find_spec; \
	all(map(find_spec, ("venv", "ensurepip"))) or sys.exit("has no venv (Debian, Ubuntu: install python3-venv)")

.DEFAULT_GOAL := help
.PHONY: help demo test portable programs share wheel properties coverage benchmark mutants gpflow-tests lint types format docs \
	links numpy2 lowest newest clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(STAMP)  ## Run the demonstration
	$(BIN)/python -m gpflow_gvi demo $(ARGS)

test: $(STAMP)  ## Run the fast tests (all of them: make test ARGS=--runslow)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# NumPy's and SciPy's OpenBLAS sums in another order then, and TensorFlow does without oneDNN.
portable: $(STAMP)  ## Run the fast tests as on two other processors, Haswell and Nehalem
	for core in Haswell Nehalem; do \
	    echo "OPENBLAS_CORETYPE=$$core"; \
	    OPENBLAS_CORETYPE=$$core TF_ENABLE_ONEDNN_OPTS=0 \
	        $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS) || exit 1; \
	done

programs: $(STAMP)  ## Run examples, demonstration, pages, shortened notebooks, and a wheel
	$(BIN)/python -m pytest -n 2 --dist worksteal --runslow $(PROGRAMS)

share:
	@echo $(SHARE)

# Only the dependencies of the wheel are there at first: commands that need an extra must say so.
wheel: WHEEL := $(abspath $(VENV)-wheel)
wheel: $(STAMP)  ## Build a wheel, install it into a fresh environment, run its commands there
	rm -rf build $(WHEEL)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEEL)/dist .
	$(BIN)/python -m venv $(WHEEL)
	$(WHEEL)/bin/pip install --quiet -c constraints.txt $(WHEEL)/dist/*.whl
	mkdir $(WHEEL)/work
	cp examples/quick_start.py examples/experiment.yaml examples/small_sweep.yaml \
	    gpflow_gvi/demo/yacht.csv $(WHEEL)/work
	cd $(WHEEL)/work && ../bin/python quick_start.py && ../bin/gpflow-gvi demo
	! $(WHEEL)/bin/gpflow-gvi run none.yaml
	! $(WHEEL)/bin/gpflow-gvi report $(WHEEL)/work
	$(WHEEL)/bin/pip install --quiet -c constraints.txt pandas jinja2 matplotlib
	cd $(WHEEL)/work && ../bin/gpflow-gvi learn yacht.csv --target resistance --effort fast \
	    && ../bin/gpflow-gvi predict model yacht.csv
	$(WHEEL)/bin/pip install --quiet -c constraints.txt "$$(echo $(WHEEL)/dist/*.whl)[experiments]"
	cd $(WHEEL)/work && ../bin/gpflow-gvi schema > schema.json \
	    && ../bin/gpflow-gvi run experiment.yaml --folder runs/one \
	    && ../bin/gpflow-gvi sweep small_sweep.yaml --sample 2 --folder runs/sweep \
	    && ../bin/gpflow-gvi report runs/sweep

properties: $(STAMP)  ## Run what has to hold of every fit of learn, some ten minutes
	$(BIN)/python -m pytest -n 2 --dist worksteal --runslow tests/properties $(ARGS)

coverage: $(STAMP)  ## Run the fast tests with coverage, at half the speed
	$(BIN)/python -m pytest -n 2 --dist worksteal --cov $(ARGS)

benchmark: $(STAMP)  ## Measure beside other libraries (one part: make benchmark ARGS=steps)
	$(BIN)/python -m gpflow_gvi benchmark $(ARGS)

mutants: $(STAMP)  ## Change the core mathematics in a sample of places, about an hour: do tests notice?
	$(PIP_INSTALL) -e ".[mutants]"
	$(BIN)/python -m benchmarks.mutants $(ARGS)

gpflow-tests: $(STAMP)  ## Run GPflow's own tests of SVGP and posteriors on ours (GPFLOW_SOURCE=its clone)
	$(BIN)/python -m benchmarks.gpflow_tests -q $(ARGS)

lint: $(STAMP)  ## Check style, formatting, layers, and files: conflict markers, white space, YAML, TOML, size
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/lint-imports --no-cache
	git grep -Ilz "" | xargs -0 $(BIN)/check-merge-conflict --assume-in-merge
	git grep -Ilz "" | xargs -0 $(BIN)/end-of-file-fixer
	git grep -Ilz "" | xargs -0 $(BIN)/trailing-whitespace-fixer
	git ls-files -z "*.yml" "*.yaml" | xargs -0 $(BIN)/check-yaml
	git ls-files -z "*.toml" | xargs -0 $(BIN)/check-toml
	git ls-files -z . ":!benchmarks/results/thesis_sweep" \
		| xargs -0 $(BIN)/check-added-large-files --enforce-all --maxkb=$(MAX_KB)

types: $(STAMP)  ## Check types
	$(BIN)/python -m mypy

format: $(STAMP)  ## Format the code and apply automatic fixes
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: $(DOCS_STAMP)  ## Build the documentation in docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

links: $(DOCS_STAMP)  ## Check every link of the documentation (needs the network)
	$(BIN)/python -m sphinx -b linkcheck -D nb_execution_mode=off docs docs/_build/links

numpy2: $(NUMPY2)/.ready  ## Run the fast tests with numpy 2 in an environment of its own, also on Python 3.13
	$(NUMPY2)/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

lowest: $(LOWEST)/.ready  ## Run the fast tests with the oldest versions that pyproject.toml allows
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

newest: $(NEWEST)/.ready  ## Run the fast tests with the newest versions of everything, no pins of constraints.txt
	$(NEWEST)/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

clean:  ## Remove all generated files and the environments
	rm -rf $(VENV) $(VENV)-wheel .venv-numpy2-* $(LOWEST) $(NEWEST) .tox build dist *.egg-info docs/_build htmlcov .coverage .coverage.*
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(wildcard gpflow_gvi tests docs examples benchmarks) -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp is removed before an installation and written after it. Without a stamp the installation
# is missing or incomplete: create the environment again. An old stamp means: update the environment.
$(STAMP): pyproject.toml setup.py constraints.txt
	@if [ ! -e $@ ]; then \
	    found=; reasons=; \
	    for candidate in $(PYTHONS); do \
	        if ! command -v "$$candidate" >/dev/null 2>&1; then why="is not installed"; \
	        elif why=$$("$$candidate" -c '$(USABLE)' 2>&1); then found=$$candidate; break; \
	        else why=$$(printf '%s\n' "$$why" | head -n 1); fi; \
	        reasons="$$reasons  $$candidate: $$why\n"; \
	    done; \
	    if [ -z "$$found" ]; then \
	        printf 'This needs Python 3.10, 3.11 or 3.12 with venv. Tried:\n%b' "$$reasons" >&2; \
	        printf 'Use another one: make PYTHON=/path/to/python3.11\n' >&2; \
	        exit 1; \
	    fi; \
	    echo "Creating $(VENV) with $$("$$found" --version)"; \
	    "$$found" -m venv --clear $(VENV); \
	fi
	@rm -f $@ $(DOCS_STAMP)
	@echo "Installing into $(VENV): TensorFlow is large, the first time takes some minutes"
	$(PIP_INSTALL) -e ".[tests,lint,types,plots]"
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(PIP_INSTALL) -e ".[docs]"
	@touch $@

# What the tests need besides; with the extra itself pip would install gpflow's numpy<2.
TESTS_EXTRA := import tomllib; \
	extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	tests = extras["tests"] + extras["experiments"]; \
	print(*(each for each in tests if not each.startswith("gpflow-gvi[")), sep="\n")

# The two commands of docs/numpy_2.md, under the pins of constraints.txt but numpy's.
$(NUMPY2)/.ready: pyproject.toml requirements-numpy2.txt constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "numpy 2 needs Python 3.11 or later: make numpy2 PYTHON=python3.13")'
	@echo "Installing into $(NUMPY2): TensorFlow is large, this takes some minutes"
	@$(PYTHON) -m venv --clear $(NUMPY2)
	@sed '/^numpy==/d' constraints.txt > $(NUMPY2)/constraints.txt
	@$(NUMPY2)/bin/python -c '$(TESTS_EXTRA)' > $(NUMPY2)/tests.txt
	$(NUMPY2)/bin/python -m pip install --quiet --disable-pip-version-check -c $(NUMPY2)/constraints.txt \
	    -r requirements-numpy2.txt -r $(NUMPY2)/tests.txt
	$(NUMPY2)/bin/python -m pip install --quiet --disable-pip-version-check -c $(NUMPY2)/constraints.txt \
	    --no-deps gpflow gpflux -e .
	@touch $@

# Each lower bound as a pin, so that pip takes the last release of that version.
LOWER_BOUNDS := import re, tomllib; \
	project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	every = project["dependencies"] + sum(project["optional-dependencies"].values(), []); \
	found = {match[0]: match[1] for match in re.findall(r"^([\w-]+)>=([\w.]+)$$", "\n".join(every), re.M)}; \
	print(*(f"{name}=={version}.*" for name, version in found.items()), sep="\n")

$(LOWEST)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13) and "make lowest needs Python 3.11 or 3.12")'
	@echo "Installing into $(LOWEST): TensorFlow is large, this takes some minutes"
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -c '$(LOWER_BOUNDS)' > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt \
	    -e ".[tests,plots]"
	@touch $@

$(NEWEST)/.ready: pyproject.toml
	@echo "Installing into $(NEWEST): TensorFlow is large, this takes some minutes"
	@$(PYTHON) -m venv --clear $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check -e ".[tests,plots]"
	@touch $@
