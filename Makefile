# Every target works alone on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
IN_DOUBLE_PRECISION := tests/laws/test_subsampling.py tests/test_moments.py tests/test_precision.py \
	tests/test_models.py tests/test_taylor.py
SLOWLY_IN_DOUBLE_PRECISION := tests/laws/test_reversible_jump.py tests/laws/test_acceptance_frequency.py tests/laws/test_detailed_balance.py \
	tests/laws/test_wrong_decisions.py tests/test_mode.py tests/test_optimise.py tests/test_optimise_degenerate.py \
	tests/test_drivers.py::test_both_drivers_give_the_same_chains_bit_for_bit

.PHONY: setup demo test test-slow mutants lint wheel-check bench docs site notebooks clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/tallmc demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile
	TALLMC_X64=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(IN_DOUBLE_PRECISION)

test-slow: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow
	TALLMC_X64=1 $(BIN)/python -m pytest -n 2 $(SLOWLY_IN_DOUBLE_PRECISION)

mutants: $(READY)
	$(BIN)/python -m tests.mutants

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

wheel-check:
	PYTHON=$(PYTHON) .ci/wheel

bench: $(READY)
	$(BIN)/python -m benchmarks

docs: $(READY)
	$(BIN)/python -m pytest tests/test_docs.py -m ""

site: $(READY)
	$(BIN)/python docs/site/gather.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file build/mkdocs.yml
	@echo "build/site/index.html"

notebooks: $(READY)
	$(BIN)/python docs/site/execute.py

clean:
	rm -rf $(VENV)
