# Tests that need torch, and those against ExecuTorch itself: an environment of their own, its packages are none of ours.
INTEROP_VENV ?= .venv-interop
INTEROP_RUN := $(INTEROP_VENV)/bin/python -m

.PHONY: test-torch test-interop

$(INTEROP_VENV)/.installed: tests/interop/requirements.txt tests/interop/requirements-nodeps.txt
	@echo "== setting up $(INTEROP_VENV) with $$($(PYTHON) --version)"
	@test -x $(INTEROP_VENV)/bin/python || $(PYTHON) -m venv $(INTEROP_VENV)
	@$(INTEROP_RUN) pip install --quiet --requirement tests/interop/requirements.txt
	@$(INTEROP_RUN) pip install --quiet --no-deps --requirement tests/interop/requirements-nodeps.txt
	@$(INTEROP_RUN) pip install --quiet --no-deps --editable .
	@touch $@

test-torch: $(INTEROP_VENV)/.installed  ## run the tests that need torch
	@echo "== running the tests that need torch"
	@$(INTEROP_RUN) pytest tests/partition tests/lowering $(TEST)

test-interop: $(INTEROP_VENV)/.installed  ## compare sets, graphs and blobs with ExecuTorch itself
	@echo "== comparing with ExecuTorch"
	@$(INTEROP_RUN) pytest tests/interop $(TEST)
