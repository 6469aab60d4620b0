# Two commands do everything on a fresh clone: `make demo` and `make test`. They install what they need inside this folder;
# Chromium comes from the system. Each target calls a program in tools/.
PYTHON := $(shell sh tools/find_python.sh)
ifeq ($(PYTHON),)
$(error Python 3.11 or newer is needed)
endif
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: audit mutants sbom help setup demo test test-all test-rust test-python test-js test-browser test-notebooks lint format wheels test-aarch64 recipe workflows bench bench-hooks fuzz faults soak memcheck docs \
	diagnosis-report exam conformance test-frameworks pictures fixtures clean

help:  ## Print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1	/p' Makefile | expand -t 18

setup:  ## Install everything: Python environment, front end, extension module, Chromium
	@$(PYTHON) tools/setup.py

demo: ## Start a live run and open JupyterLab on the first notebook (ARGS=--headless-check: without a browser)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(BIN)/smdwidgets demo $(ARGS)

test:  ## Run the checks and tests that a normal change can break (ARGS="python e2e": these suites in full)
	@$(PYTHON) tools/test.py $(ARGS)

test-all:  ## Run every check and test: also campaigns, all notebooks and pages, packaging, planted faults
	@$(PYTHON) tools/test.py all

lint:  ## Check formatting, lints and types of all three languages
	@$(PYTHON) tools/test.py lint

test-rust:  ## Test the core
	@$(PYTHON) tools/test.py rust

test-python:  ## Test the Python package
	@$(PYTHON) tools/test.py python

test-js:  ## Test the front end, in jsdom and in Chromium
	@$(PYTHON) tools/test.py front-end browser

test-browser:  ## Test in JupyterLab and Notebook 7 with Chromium
	@$(PYTHON) tools/test.py e2e

test-notebooks:  ## Run every notebook in a kernel
	@$(PYTHON) tools/test.py notebooks

format:  ## Format all sources
	@$(PYTHON) tools/setup.py python npm
	@cargo fmt --all
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format --quiet
	@npm --prefix js run --silent format

bench:  ## Compare speed with peers in one run; write tests/benchmarks/RESULTS.md
	@$(PYTHON) tools/setup.py python front-end extension peers
	@$(BIN)/python tests/benchmarks/run.py $(ARGS)
	@for name in reduce trial rules stores verify tensorboard long_log start_up long_runs manifest; do $(BIN)/python tests/benchmarks/bench_$$name.py || exit 1; done

bench-hooks:  ## Measure what the PyTorch hook adds to a training step, beside smdebug's (downloads PyTorch)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(PYTHON) tools/frameworks.py --only-environment torch
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_hooks.py $(ARGS)
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_plan.py
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_cuda.py
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_checks.py
	@PYTHONPATH=python .venv-torch/bin/python tests/benchmarks/bench_torch.py $(if $(EARLIER),--earlier $(EARLIER))

diagnosis-report:  ## Measure the diagnosis on planted faults; write docs/diagnosis-figures.md (ARGS="--logs DIRECTORY": public logs too)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(BIN)/python tests/diagnosis/report.py --write $(ARGS)

exam:  ## Examine the diagnosis on programs and logs of a directory, in PyTorch's environment (ARGS="DIRECTORY --jobs 2")
	@$(PYTHON) tools/setup.py python front-end extension
	@$(PYTHON) tools/frameworks.py --only-environment torch
	@$(BIN)/python tests/diagnosis/exam.py $(ARGS)

wheels:  ## Build this machine's wheel as a release does, and try it with every Python here (ARGS="--target TRIPLE")
	@$(PYTHON) tools/wheels.py $(ARGS)

test-aarch64:  ## Run the core's tests for aarch64 in QEMU
	@$(PYTHON) tools/emulated.py

recipe:  ## Check the conda recipe
	@$(PYTHON) tools/recipe.py

workflows:  ## Check the workflows with actionlint; needs Go
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

fuzz:  ## Run each fuzz target for 30 seconds (SECONDS=300: longer); needs nightly Rust and cargo-fuzz
	@$(PYTHON) tools/fuzz.py $(or $(SECONDS),30)

audit:  ## Check all dependencies for known vulnerabilities; needs the network
	@$(PYTHON) tools/setup.py python npm
	@$(BIN)/python tools/audit.py

sbom:  ## Write the wheel's bill of materials: dist/smdwidgets.cdx.json
	@$(PYTHON) tools/setup.py python
	@$(BIN)/python tools/supply.py sbom

mutants:  ## Check that tests notice the mutations of tools/mutants.toml (ARGS="js/": those of these files)
	@$(PYTHON) tools/setup.py python front-end extension
	@$(BIN)/python tools/mutants.py $(ARGS)

faults:  ## Run the fault campaigns at full length, without the soak (ARGS="--seed 7")
	@$(PYTHON) tools/setup.py python front-end extension
	@$(PYTHON) tools/faults.py --no-soak $(ARGS)

soak:  ## Follow a live run with every widget and rule for 30 minutes (SECONDS=7200: longer)
	@$(PYTHON) tools/setup.py python front-end extension
	@SOAK_SECONDS=$(or $(SECONDS),1800) $(BIN)/python -m pytest -q -s tests/faults/test_soak.py

memcheck:  ## Run the compiled code under AddressSanitizer, Miri and valgrind where installed (ARGS=asan: only that)
	@$(PYTHON) tools/memcheck.py $(ARGS)

docs:  ## Update the generated pages and build the documentation site in site/
	@$(PYTHON) tools/setup.py python front-end extension docs
	@$(BIN)/python tools/reference.py
	@$(BIN)/python -m smdwidgets.rules.document docs/rules.md
	@$(BIN)/python -m smdwidgets.finding.document docs/diagnosis.md docs/checks.md
	@$(BIN)/python -m smdwidgets.cli.document docs/commands.md
	@$(BIN)/zensical build --strict

pictures:  ## Take the pictures of README.md and docs/ from the real widgets
	@$(PYTHON) tools/setup.py python front-end extension browser
	@$(BIN)/python tools/pictures.py
	@$(BIN)/python tools/rule_pictures.py
	@if [ -d .venv-torch ]; then $(BIN)/python tools/replay_pictures.py; else echo "no .venv-torch: kept the pictures of docs/time-travel.md"; fi

conformance:  ## Compare every public call with smdebug 1.0.34 on the same runs
	@$(PYTHON) tools/test.py conformance

test-frameworks:  ## Train with PyTorch, Keras, XGBoost and MXNet, each in its own environment (downloads gigabytes; ARGS=torch)
	@$(PYTHON) tools/frameworks.py $(ARGS)

fixtures:  ## List packed test data (ARGS="unpack golden", then ARGS="pack golden": change it)
	@$(PYTHON) tests/fixtures.py $(ARGS)

clean:  ## Remove everything that was built or installed
	rm -rf .venv .venv-* .cache target rust/fuzz/target js/node_modules python/smdwidgets/static site dist
	rm -f python/smdwidgets/_core*.so python/smdwidgets/_core*.pyd
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
