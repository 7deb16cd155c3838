# make demo: watch a model forget. make study: every method, three seeds, and the report. make theory: what can be proved.
# make test: the test suite.
# All create .venv with the tested versions first.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo study theory test lint clean

demo: $(READY)
	$(VENV)/bin/atwu demo

study: $(READY)
	$(VENV)/bin/atwu study run headline --scale people-small

theory: $(READY)
	$(VENV)/bin/python -m theory --output theory-out

test: $(READY) lint
	$(VENV)/bin/python -m pytest --numprocesses auto --dist loadscope --no-loadscope-reorder

lint: $(READY)
	$(VENV)/bin/ruff check src tests benchmarks examples theory scripts
	$(VENV)/bin/ruff format --check src tests benchmarks examples theory scripts
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo --no-cache

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet torch -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet -e ".[dev]" -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV)
