# Everything runs in a .venv that these targets make. PYTHON chooses the interpreter (3.11 or newer).
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
# The tests of a file share compiled programs, so they stay on one worker.
PYTEST := pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test test-slow test-all test-lowest lint bench foreign docs pictures build clean

demo: .venv/.installed
	$(BIN)/gloam demo

test: .venv/.test
	$(BIN)/$(PYTEST)

# The tests that are marked as slow, and all tests, before a release.
test-slow: .venv/.test
	$(BIN)/$(PYTEST) -m 'slow and not release'
test-all: .venv/.test
	$(BIN)/$(PYTEST) -m 'slow or not slow'

# A part of the tests with the lowest versions that pyproject.toml allows, in an environment of its own.
# Old versions warn about one another, so warnings are not errors here.
LOWEST := tests/test_step.py tests/test_imports.py tests/tools/test_checks.py tests/archives \
	tests/formats/test_run_folder.py tests/formats/test_objects.py tests/searches/test_search.py tests/plots
test-lowest: .venv/.installed
	$(BIN)/pip install -q uv
	$(BIN)/uv venv -q --clear --python $(BIN)/python .venv/lowest
	$(BIN)/uv pip install -q --python .venv/lowest/bin/python --resolution lowest-direct -e '.[lowest]'
	.venv/lowest/bin/python -m $(PYTEST) -W default $(LOWEST)

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: .venv/.bench
	$(BIN)/gloam bench

# The problems that others wrote, in an environment of their own. A run that was stopped continues.
foreign: .venv-foreign/.installed
	.venv-foreign/bin/python benchmarks/foreign/run.py $(FOREIGN)

# The documentation site, in site/. Warnings are errors, and nothing is read from the network.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

# Renders the pictures of README and docs from fresh runs.
pictures: .venv/.installed
	rm -rf runs/docs runs/gallery
	$(BIN)/gloam demo --domain lp --out runs/docs
	cp runs/docs/figures/discount.png runs/docs/figures/archive.png docs/images/
	$(BIN)/gloam demo --out runs/gallery
	cp runs/gallery/figures/gallery.png docs/images/
	$(BIN)/python scripts/draw_histograms.py
	$(BIN)/python scripts/draw_settings.py
	$(BIN)/python scripts/draw_targets.py
	$(BIN)/python scripts/draw_plots_page.py

# The source distribution and the wheel, in dist/.
build: .venv/.build
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

.venv/.installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[demo]'
	touch $@

.venv/.test: .venv/.installed
	$(BIN)/pip install -q -e '.[test]'
	touch $@

.venv/.lint: .venv/.installed
	$(BIN)/pip install -q -e '.[lint,explorer]'
	touch $@

.venv/.docs: .venv/.installed
	$(BIN)/pip install -q -e '.[docs]'
	touch $@

.venv/.build: .venv/.installed
	$(BIN)/pip install -q -e '.[build]'
	touch $@

.venv/.bench: .venv/.installed
	$(BIN)/pip install -q -e '.[bench]'
	touch $@

.venv-foreign/.installed: benchmarks/foreign/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-foreign
	.venv-foreign/bin/pip install -q -e . -r $<
	touch $@

clean:
	rm -rf .venv .venv-foreign runs dist site .pytest_cache .ruff_cache .hypothesis
