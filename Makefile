# Everything runs in a .venv that these targets make. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test test-all lint bench docs clean

demo: .venv/.installed
	$(BIN)/gloam demo

test: .venv/.test
	$(BIN)/pytest -n $(WORKERS)

# Also the tests that are marked as slow.
test-all: .venv/.test
	$(BIN)/pytest -n $(WORKERS) -m 'slow or not slow'

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/.bench
	$(BIN)/gloam bench

# Renders the pictures of README and docs/plots.md.
docs: .venv/.installed
	$(BIN)/gloam demo --domain lp --out runs/docs
	cp runs/docs/figures/discount.png runs/docs/figures/archive.png docs/images/
	$(BIN)/gloam demo --out runs/gallery
	cp runs/gallery/figures/gallery.png docs/images/
	$(BIN)/python scripts/draw_plots_page.py

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[demo]'
	touch $@

.venv/.test: .venv/.installed
	$(BIN)/pip install -q -e '.[test]'
	touch $@

.venv/.lint: .venv/.installed
	$(BIN)/pip install -q -e '.[lint]'
	touch $@

.venv/.bench: .venv/.installed
	$(BIN)/pip install -q -e '.[bench]'
	touch $@

clean:
	rm -rf .venv runs .pytest_cache .ruff_cache .hypothesis
