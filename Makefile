# Two commands do everything on a fresh clone: `make demo` and `make test`. What they need they install, inside this folder
# (but for Chromium, which comes from the system). Each target is a line here and a program in tools/.
PYTHON := $(shell sh tools/find_python.sh)
ifeq ($(PYTHON),)
$(error Python 3.11 or newer is needed)
endif
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: audit sbom help setup demo test test-rust test-python test-js test-browser test-notebooks lint format bench bench-hooks fuzz faults soak memcheck docs \
	conformance test-frameworks pictures clean

help:  ## This list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 18

setup:  ## Virtual environment, front end, extension module, Chromium
	@$(PYTHON) tools/setup.py

demo: ## A live run, and JupyterLab on the first notebook (ARGS=--headless-check: without a browser)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(BIN)/smdwidgets demo $(ARGS)

test:  ## Every check and test
	@$(PYTHON) tools/test.py

lint:  ## Formatting, lints and types of all three languages
	@$(PYTHON) tools/test.py lint

test-rust:  ## Tests of the core
	@$(PYTHON) tools/test.py rust

test-python:  ## Tests of the Python package
	@$(PYTHON) tools/test.py python

test-js:  ## Tests of the front end, in jsdom and in Chromium
	@$(PYTHON) tools/test.py front-end browser

test-browser:  ## The whole in a real JupyterLab and a real Chromium
	@$(PYTHON) tools/test.py e2e

test-notebooks:  ## Every notebook in a real kernel
	@$(PYTHON) tools/test.py notebooks

format:  ## Formats all sources
	@$(PYTHON) tools/setup.py python npm
	@cargo fmt --all
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format --quiet
	@npm --prefix js run --silent format

bench:  ## Ours beside the peers; writes tests/benchmarks/RESULTS.md
	@$(PYTHON) tools/setup.py python front-end extension peers
	@$(BIN)/python tests/benchmarks/run.py $(ARGS)
	@for name in reduce trial rules s3 verify; do $(BIN)/python tests/benchmarks/bench_$$name.py || exit 1; done

bench-hooks:  ## What our PyTorch hook adds to a training step, beside smdebug's (downloads PyTorch)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(PYTHON) tools/frameworks.py --only-environment torch
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_hooks.py $(ARGS)

fuzz:  ## Each fuzz target for 30 seconds (SECONDS=300 for longer); needs a nightly Rust and cargo-fuzz
	@$(PYTHON) tools/fuzz.py $(or $(SECONDS),30)

audit:  ## Known holes in everything that is built with or shipped; needs the network
	@$(PYTHON) tools/setup.py python npm
	@$(BIN)/python tools/audit.py

sbom:  ## A bill of materials of the wheel and of what it needs: dist/smdwidgets.cdx.json
	@$(PYTHON) tools/setup.py python
	@$(BIN)/python tools/supply.py sbom

faults:  ## The fault campaign at full length, without the soak (ARGS="--seed 7")
	@$(PYTHON) tools/setup.py python front-end extension
	@$(PYTHON) tools/faults.py --no-soak $(ARGS)

soak:  ## A live run with everything attached for 30 minutes (SECONDS=7200 for longer)
	@$(PYTHON) tools/setup.py python front-end extension
	@SOAK_SECONDS=$(or $(SECONDS),1800) $(BIN)/python -m pytest -q -s tests/faults/test_soak.py

memcheck:  ## The compiled code under AddressSanitizer, Miri and valgrind, as far as this machine has them (ARGS=asan)
	@$(PYTHON) tools/memcheck.py $(ARGS)

docs:  ## The documentation site, in site/
	@$(PYTHON) tools/setup.py python front-end extension docs
	@$(BIN)/zensical build --strict

pictures:  ## The pictures in README.md and docs/, from the real widgets
	@$(PYTHON) tools/setup.py python front-end extension browser
	@$(BIN)/python tools/pictures.py
	@$(BIN)/python tools/rule_pictures.py

conformance:  ## The same runs read by smdebug 1.0.34 and by us
	@$(PYTHON) tools/test.py conformance

test-frameworks:  ## Real trainings with PyTorch, Keras, XGBoost and MXNet, each in an environment of its own (gigabytes)
	@$(PYTHON) tools/frameworks.py $(ARGS)

clean:  ## Everything that was made
	rm -rf .venv .venv-* .cache target rust/fuzz/target js/node_modules python/smdwidgets/static site dist
	rm -f python/smdwidgets/_core*.so python/smdwidgets/_core*.pyd
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
