# Two commands matter: `make demo` and `make test`. Both set up $(VENV) first, and again only when setup.cfg changes.
PYTHON ?= python3
VENV ?= .venv
TEST ?=
# processes that run tests
WORKERS ?= 2

RUN := $(VENV)/bin/python -m
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# tests start many processes, and each would compile refsim's sources anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint docs dist bench mutants mutants-random clean gpu-if-possible

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 22

include gpu/gpu.mk
include tests/interop/interop.mk

# The .pth: in the folder that holds a clone called refsim, Python would take the clone itself for an empty package.
$(VENV)/.installed: setup.cfg pyproject.toml gpu/requirements-build.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) here; fix: apt-get install python3 python3-venv"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' || { \
	  echo "make: $$($(PYTHON) --version 2>&1) will not do, need Python 3.10 to 3.13; fix: make PYTHON=/path/to/python3.12"; exit 2; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "make: $(PYTHON) cannot make environments, venv or ensurepip is missing; fix: apt-get install python3-venv"; exit 2; }
	@echo "== setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) pip install --quiet --editable '.[test,webgpu]' || { echo "make: pip could not install refsim, see above"; exit 2; }
	@$(VENV)/bin/python -c 'import sysconfig; open(sysconfig.get_path("purelib") + "/refsim-checkout.pth", "w").write("$(CURDIR)\n")'
	@touch $@

demo: $(VENV)/.installed  ## run a real .pte on the CPU and compare every packed buffer with what ET-VK wrote
	@echo "== running the bundled models; the first run also compiles the kernels (some seconds)"
	@$(VENV)/bin/refsim demo

# a process that crashes ends the run and is named; pytest-xdist waits for ever where it starts another for loadfile
PYTEST := $(RUN) pytest -n $(WORKERS) --dist loadfile --max-worker-restart 0

test: $(VENV)/.installed gpu-if-possible  ## run the tests that take minutes, on a Vulkan device too where there is one
	@echo "== running the tests"
	@$(PYTEST) -m "not long" $(TEST)

test-all: test  ## run the long tests too: other processors, whole corpus on a GPU, seeded bugs, documented commands
	@echo "== running the long tests"
	@$(PYTEST) -m long $(TEST)

# A machine without a Vulkan driver, or without the right to install one, still passes; REFSIM_GPU=require forbids that.
gpu-if-possible: $(VENV)/.installed
	@echo "== looking for a Vulkan device (lavapipe will do)"
	@$(RUN) refsim_gpu.build_kp --install || if test "$$REFSIM_GPU" = require; then exit 3; else \
	  echo "tests that need a Vulkan device will be skipped, for the reason above; fix: make gpu"; fi

lint: $(VENV)/.installed  ## ruff and mypy
	@echo "== checking style and types"
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy

# a broken link or anchor is an error
docs: $(VENV)/.installed-docs  ## build the documentation as a site that needs no network: out/site/index.html
	@echo "== building the documentation"
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --config-file docs/site/mkdocs.yml
	@echo "open out/site/index.html"

$(VENV)/.installed-docs: $(VENV)/.installed
	@$(RUN) pip install --quiet --editable '.[docs]' || { echo "make: pip could not install MkDocs, see above"; exit 2; }
	@touch $@

dist: $(VENV)/.installed  ## build what a release has: sdist, wheel, wheel of the golden corpus; writes dist/
	@echo "== building the distributions"
	@$(VENV)/bin/python release/dist.py

bench: $(VENV)/.installed  ## time layouts and operators against their peers; writes out/bench/*.json
	@echo "== running the benchmarks"
	@$(RUN) bench

# make mutants ONLY="cpu-I1-q8ta_add cpu-N7-add", make mutants MUTATE="--workers 2 --record"
mutants: $(VENV)/.installed  ## seed known bugs into copies of the sources; the corpus must notice each
	@echo "== seeding bugs and running what should show them"
	@$(RUN) refsim.cli mutate $(addprefix --id=,$(ONLY)) $(MUTATE)

# make mutants-random N=500 SEED=7 MUTATE="--workers 8 --results out/random.jsonl"
N ?= 500
SEED ?= 0
mutants-random: $(VENV)/.installed  ## make small random changes in copies of the sources; corpus, models or tests must notice each
	@echo "== changing copies of the sources at random (N=$(N), SEED=$(SEED)) and running what should notice it"
	@$(RUN) refsim.cli mutate --random $(N) --seed $(SEED) $(MUTATE)

clean:  ## remove the environment and everything that was built
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
