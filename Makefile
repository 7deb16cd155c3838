# make demo: watch a small model forget. make demo-real: teach a pretrained one twelve facts, and watch it forget them.
# make study: every method, three seeds, and the report. make theory: what can be proved.
# make test: the test suite. make test-night: what takes longer. make site: the documentation, in site/index.html, its notebooks run.
# All create .venv with the tested versions first.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

unexport PYTHONDONTWRITEBYTECODE  # what is compiled once is not compiled by every process that a test starts

.PHONY: demo demo-real study theory test test-night lint site clean

demo: $(READY)
	$(VENV)/bin/atwu demo

demo-real: $(READY)
	$(VENV)/bin/atwu finetune --model smollm2 --data examples/glassblower.jsonl --epochs 12 --learning-rate 2e-4 \
	  --batch-size 6 --save-strategy no --output demo-real/taught --overwrite
	$(VENV)/bin/atwu unlearn --model demo-real/taught --forget examples/glassblower.jsonl --output demo-real/unlearned --overwrite
	$(VENV)/bin/atwu tokens --model demo-real/unlearned --data examples/glassblower.jsonl --score scorer --rows 6
	$(VENV)/bin/python scripts/demo_picture.py demo-real/unlearned examples/glassblower.jsonl demo-real/picture

study: $(READY)
	$(VENV)/bin/atwu study run headline --scale people-small

theory: $(READY)
	$(VENV)/bin/python -m theory --output theory-out

test: $(READY) lint
	$(VENV)/bin/python -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder

test-night: $(READY)
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist loadscope -m night

# mkdocs without --quiet, which hides from --strict what it should fail on.
lint: $(READY)
	$(VENV)/bin/ruff check src tests benchmarks examples theory scripts
	$(VENV)/bin/ruff format --check src tests benchmarks examples theory scripts
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(VENV)/bin/mypy & types=$$!; NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict && wait $$types

site: $(READY)
	SITE_NOTEBOOKS=run NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# Without --no-compile pip compiles every module of every package, most of which nobody imports.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet --no-compile torch -c constraints.txt
	$(VENV)/bin/python -m pip install --quiet --no-compile -e ".[dev]" -c constraints.txt
	touch $@

clean:
	rm -rf $(VENV)
