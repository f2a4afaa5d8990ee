# `make quickstart` runs a whole study, `make test` passes the suite, `make bench` measures how fast it all is, and
# `make attack` attacks it and kills it. Each sets itself up.
PYTHON ?= python3
VENV ?= .venv
SEED ?= 0
export OMP_WAIT_POLICY = passive
export OMP_NUM_THREADS = 1

.PHONY: quickstart test lint attack bench chromium clean

quickstart: $(VENV)/run
	$(VENV)/bin/isocost quickstart --seed $(SEED)

test: $(VENV)/dev chromium lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/dev
	$(VENV)/bin/ruff check src tests experiments bench
	$(VENV)/bin/mypy

# Bad inputs, hostile rewards, and runs killed at random instants: the count is printed at the end.
attack: $(VENV)/dev chromium
	$(VENV)/bin/python tests/attack.py

# What it is measured against lives in a virtual environment of its own: `make bench BENCH_TRL_PYTHON=...` takes
# another one that has it. `make bench BENCH="step --variants base"` runs a part; see `python -m bench --help`.
BENCH ?=
TRL_VENV = .venv-trl
BENCH_TRL_PYTHON ?= $(CURDIR)/$(TRL_VENV)/bin/python
export BENCH_TRL_PYTHON

bench: $(VENV)/dev $(if $(filter $(CURDIR)/$(TRL_VENV)/%,$(BENCH_TRL_PYTHON)),$(TRL_VENV)/run)
	$(VENV)/bin/python -m bench $(BENCH)

$(TRL_VENV)/run: bench/constraints.txt
	$(PYTHON) -m venv $(TRL_VENV) && echo "*" > $(TRL_VENV)/.gitignore
	$(TRL_VENV)/bin/pip install -q --disable-pip-version-check -r bench/constraints.txt
	touch $@

$(VENV)/run: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/run

# The report is tested in a real browser where one is to be had; without one those tests say that they were skipped.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || echo "no chromium: browser tests will be skipped"

clean:
	rm -rf $(VENV) $(TRL_VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info
