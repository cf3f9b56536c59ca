# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Works with GNU make 3.81 (macOS) and later.

PYTHON ?= python3
VENV ?= .venv
# A second environment with pandas 3, which GluonTS does not allow beside itself.
VENV3 ?= $(VENV)-pandas3
# What pip is asked for first, so that one may choose the build, e.g.
#   make demo TORCH="torch --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch
# `make demo`: nothing (the embedded series), a folder that holds ETTh1.csv, or `download`.
# `make bench-ett`: nothing (sought, then fetched) or a folder.
DATA ?=
# `make bench-ett`: where its results go, and more options of each command, e.g. ARGS="--jobs 2";
# QUICK=1 runs one horizon of ETTh1 with one seed, FINAL=1 scores the test windows and logs that.
OUT ?= benchmark-output
ARGS ?=
QUICK ?=
FINAL ?=
# `make bench-icl`, `make bench-lm`: which file of benchmarks/icl or benchmarks/lm is run (RUNS=quick
# takes minutes on two cores, the others want a GPU), and more options, e.g. ARGS="--together 16".
# `make bench-lm`: a corpus of `mlrforecast lm prepare`; by default one of data/text below
# MLRFORECAST_DATA is made, which is enough for RUNS=quick only.
CORPUS ?=

# How many tests run at once; each process takes 0.5 to 2 GB.
WORKERS ?= 2

BIN := $(VENV)/bin
BIN3 := $(VENV3)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(BIN)/python $(INSTALL)
# A file of tests stays in one process: its fits are made once.
PYTEST := -m pytest -n $(WORKERS) --dist loadfile
# The packages whose signatures carry tensor shapes; checked while their tests run, once.
SHAPED_TESTS := tests/ops tests/nn tests/models
# What reads, resamples and writes frames, and so may differ between the releases of pandas.
FRAME_TESTS := tests/data tests/estimators tests/frames mlrforecast/data mlrforecast/estimators \
	--ignore=tests/estimators/test_export.py --ignore=tests/estimators/test_resume.py
# Says which environment runs: a failure in one only is a difference between the releases.
WHICH := -c 'import sys, pandas; print(f"== {sys.prefix}: Python {sys.version.split()[0]}, pandas {pandas.__version__}", flush=True)'

.PHONY: help demo test test-long test-frames lint docs bench-ett bench-icl bench-lm clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'
	@echo "Variables: DATA, QUICK, FINAL, RUNS, CORPUS, OUT, ARGS, TORCH, PYTHON, VENV, VENV3, WORKERS (see the top of the Makefile)."

CHECK_PYTHON := $(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed: make ... PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'

$(VENV)/.python:
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml
	$(PIP) $(TORCH)
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) --editable ".[dev]"
	@touch $@

$(VENV3)/.frames: pyproject.toml
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV3)
	$(BIN3)/python $(INSTALL) $(TORCH)
	$(BIN3)/python $(INSTALL) --editable ".[test]" "pandas>=3"
	@touch $@

demo: $(VENV)/.core ## fit, forecast, score and plot in under 3 minutes
	$(BIN)/mlrforecast demo $(if $(DATA),--data "$(DATA)")

lint: $(VENV)/.dev ## ruff (rules and format) and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## every check that CI runs
	@$(BIN)/python $(WHICH)
	$(BIN)/python $(PYTEST) $(SHAPED_TESTS) -q --jaxtyping-packages=mlrforecast,beartype.beartype -m "not compile and not slow"
	$(BIN)/python $(PYTEST) $(SHAPED_TESTS:%=--shaped=%) -m "not long"
	@$(MAKE) --no-print-directory test-frames

test-long: $(VENV)/.dev ## the longest tests, of Ray clusters and ONNX files, which CI leaves out
	$(BIN)/python $(PYTEST) -m long

test-frames: $(VENV3)/.frames ## the tests of frames once more, with pandas 3 and without GluonTS
	@$(BIN3)/python $(WHICH)
	$(BIN3)/python $(PYTEST) $(FRAME_TESTS) -m "not slow and not long"

docs: $(VENV)/.dev ## build the HTML pages into docs/_build
	$(BIN)/sphinx-build -W -b html docs docs/_build/html

BENCH_ETT = $(BIN)/mlrforecast benchmark ett --out "$(OUT)" $(if $(DATA),--root "$(DATA)") $(if $(FINAL),--final)

# Started again, all of these do what is left.
bench-ett: $(VENV)/.core ## the horizon benchmarks, on folds; QUICK=1: a part, FINAL=1: test windows
ifneq ($(QUICK),)
	$(BENCH_ETT) --dataset ETTh1 --horizons 96 --seeds 1 $(ARGS)
else
	$(BENCH_ETT) --dataset ETTh1 $(ARGS)
	$(BENCH_ETT) --dataset ETTh1 --target OT $(ARGS)
	$(BENCH_ETT) --dataset ETTh2 $(ARGS)
	$(BENCH_ETT) --dataset exchange_rate $(ARGS)
endif

bench-icl: RUNS ?= bottleneck-16
bench-icl: $(VENV)/.core ## in-context regression, the runs of benchmarks/icl/$RUNS.toml
	$(BIN)/mlrforecast icl train "benchmarks/icl/$(RUNS).toml" --out "$(OUT)/icl/$(RUNS)" --resume $(ARGS)
	$(BIN)/mlrforecast icl plot "$(OUT)/icl/$(RUNS)" --x training_flops --out "$(OUT)/icl/$(RUNS)/scaling.png"

bench-lm: RUNS ?= scaling
bench-lm: $(if $(CORPUS),,$(OUT)/lm/corpus/corpus.json) $(VENV)/.core ## language models, the runs of benchmarks/lm/$RUNS.toml
	$(BIN)/mlrforecast lm train "benchmarks/lm/$(RUNS).toml" --corpus "$(if $(CORPUS),$(CORPUS),$(OUT)/lm/corpus)" --out "$(OUT)/lm/$(RUNS)" --resume $(ARGS)
	$(BIN)/mlrforecast lm plot "$(OUT)/lm/$(RUNS)" --x paper_flops --out "$(OUT)/lm/$(RUNS)/scaling.png"

$(OUT)/lm/corpus/corpus.json: | $(VENV)/.core
	@test -n "$(MLRFORECAST_DATA)" || { echo "Name a corpus (CORPUS=folder, see 'mlrforecast lm prepare'), or set MLRFORECAST_DATA."; exit 2; }
	$(BIN)/mlrforecast lm prepare "$(MLRFORECAST_DATA)/data/text" --out "$(@D)" --overwrite

clean: ## remove the environments and everything built
	rm -rf "$(VENV)" "$(VENV3)" build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
