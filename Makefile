# make demo: unlearning with a small model. make demo-real: fine-tune a pretrained model on twelve facts, then unlearn them.
# make study: all methods, three seeds, and the report. make theory: numerical checks of the proofs.
# make test: the test suite. make lint: style, types and documents. make test-fast: its tests that train no model. make test-night: slow tests.
# make site: the documentation in site/index.html, with executed notebooks.
# Each target first creates .venv with the tested versions.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
INSTALL := $(VENV)/bin/python -m pip install --quiet --no-compile --no-build-isolation -c constraints.txt
LARGE := bitsandbytes lm_eval mkdocs-material pyarrow ray spacy

unexport PYTHONDONTWRITEBYTECODE  # so that processes started by tests need not compile again

.PHONY: demo demo-real study theory test test-fast test-night lint site clean

demo: $(READY)
	$(VENV)/bin/atwu demo

demo-real: $(READY)
	$(VENV)/bin/atwu finetune --model smollm2 --data examples/glassblower.jsonl --epochs 12 --learning-rate 2e-4 \
	  --batch-size 6 --save-strategy no --output demo-real/target --overwrite
	$(VENV)/bin/atwu unlearn --model demo-real/target --forget examples/glassblower.jsonl --method atwu --forms none \
	  --output demo-real/unlearned --overwrite
	$(VENV)/bin/atwu tokens --model demo-real/unlearned --data examples/glassblower.jsonl --score scorer --rows 6

study: $(READY)
	$(VENV)/bin/atwu study run headline --setting people-small

theory: $(READY)
	$(VENV)/bin/python -m theory --output theory-out

test: $(READY)
	$(VENV)/bin/python -m pytest --numprocesses 3 --dist loadscope --no-loadscope-reorder

test-fast: $(READY)
	$(VENV)/bin/python -m pytest @tests/fast.txt

test-night: $(READY)
	$(VENV)/bin/python -m pytest --numprocesses 2 --dist loadscope -m night

# The check of types takes longest, so it runs beside all others. mkdocs without --quiet, which hides warnings from --strict.
lint: $(READY)
	$(VENV)/bin/mypy & types=$$!; \
	$(VENV)/bin/ruff check src tests benchmarks examples theory scripts && \
	$(VENV)/bin/ruff format --check src tests benchmarks examples theory scripts && \
	$(VENV)/bin/python scripts/check_words.py && \
	$(VENV)/bin/lint-imports --no-logo --no-cache && \
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict && wait $$types

site: $(READY)
	SITE_NOTEBOOKS=run NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

# Without --no-compile pip compiles every module of every package, and without --no-build-isolation it makes an environment for each of
# the six packages that it builds. It unpacks one file after the other, so the largest packages that torch does not need are
# unpacked beside it.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip editables hatch-vcs hatchling setuptools -c constraints.txt
	$(INSTALL) torch & torch=$$!; $(INSTALL) --no-deps $(LARGE) && wait $$torch
	$(INSTALL) -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV)
