# Two commands: `make quickstart` runs a whole study, `make test` passes the suite. Both set themselves up.
PYTHON ?= python3
VENV ?= .venv
SEED ?= 0
export OMP_WAIT_POLICY = passive
export OMP_NUM_THREADS = 1

.PHONY: quickstart test lint chromium clean

quickstart: $(VENV)/run
	$(VENV)/bin/isocost quickstart --seed $(SEED)

test: $(VENV)/dev chromium lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/dev
	$(VENV)/bin/ruff check isocost tests records
	$(VENV)/bin/mypy

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
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache *.egg-info
