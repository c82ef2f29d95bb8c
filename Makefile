# make demo, make test: from a fresh clone, nothing else done by hand.

.DEFAULT_GOAL := help
SHELL := /bin/bash

# The first Python on the path that is new enough; override with `make PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { echo $$python; break; }; done)

# Modules are compiled once and not in every process that a test starts, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DEMO := $(BIN)/consilience run examples/digits.toml

.PHONY: help demo deploy-demo test test-avx2 test-text test-browser fuzz canary lint docs package image bench constraints clean

help:
	@echo "make demo         ten parties, five kinds of model, scikit-learn's digits (about a minute)"
	@echo "make deploy-demo  four hospitals and a coordinator as processes of their own, over Flower (minutes)"
	@echo "make test         the tests that take seconds, with the extras that most of them need"
	@echo "make test-avx2    those of networks, as on a processor without AVX-512"
	@echo "make test-text    those of pretrained transformers, which install another 160 MB"
	@echo "make test-browser live pages in the system's Chromium"
	@echo "make fuzz         mutated files and messages, under limits of time and memory (minutes)"
	@echo "make canary       the tests of deployment, slow ones too, with the newest Flower"
	@echo "make lint         style, types, import contracts, figures of structure and of words"
	@echo "make docs         the documentation, into site/; warnings are errors"
	@echo "make package      wheel and source archive, into dist/, tried in an empty environment"
	@echo "make image        the container of coordinator and party (docker or podman)"
	@echo "make bench        every figure of speed, into docs/results/benchmarks.md (half an hour)"
	@echo "make constraints  newest versions of all dependencies, into constraints.txt; hashes into requirements.txt"
	@echo "make clean        remove what these made, except $(VENV)"

# ---- environments --------------------------------------------------------------------------------
# One environment, filled as far as a target needs. A stamp says how far it is filled, so that a
# second call costs nothing; the pins are shared, so no target changes what another installed.

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "consilience needs Python 3.11 or newer, and none was found." \
	    "Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "consilience needs Python 3.11 or newer; $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1). Name another: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-core: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

# Another accountant of privacy, which tests compare with; it asks for an older attrs than others do.
ORACLE = dp-accounting absl-py dm-tree wrapt

# Extras of a coordinator and a party: what requirements.txt has hashes of.
DEPLOYED = excel flower page secure-sum

# Every extra there is, beside those that all has.
EXTRAS = all,catboost,embeddings,images,mlflow,secure,survival,text,ray,dev,docs

CONTAINERS := $(shell command -v docker || command -v podman)

$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[all,secure,survival,dev]'
	$(INSTALL) --no-deps $(ORACLE)
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-text: $(VENV)/.stamp-dev
	$(INSTALL) -e '.[text]'
	@touch $@

$(VENV)/.stamp-docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.stamp-core

TORCH_TESTS = $(wildcard tests/models/torch/test_*.py)

# ---- what people call ----------------------------------------------------------------------------

demo: $(VENV)/.stamp-core
	$(DEMO)

deploy-demo: $(VENV)/.stamp-dev
	folder=$$(mktemp -d)/heart; $(BIN)/python examples/deploy/run.py $$folder; \
	    status=$$?; echo "All of it is in $$folder"; exit $$status

test: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

# The libraries that compute take no later instructions, whatever the processor has.
test-avx2: export ONEDNN_MAX_CPU_ISA = AVX2
test-avx2: export ATEN_CPU_CAPABILITY = avx2
test-avx2: export MKL_ENABLE_INSTRUCTIONS = AVX2
test-avx2: export OPENBLAS_CORETYPE = Haswell
test-avx2: export NPY_DISABLE_CPU_FEATURES = X86_V4 AVX512_ICL AVX512_SPR
test-avx2: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -n 2 --dist loadfile $(or $(TESTS),$(TORCH_TESTS)) $(ARGS)

test-text: $(VENV)/.stamp-text
	$(BIN)/python -m pytest tests/models/torch/test_torch_transformer.py $(ARGS)

# In the system's Chromium; without one the test would be skipped, and nothing be said.
test-browser: $(VENV)/.stamp-dev
	@command -v chromium chromium-browser || { \
	    echo "There is no chromium on the path; on Debian: apt-get install chromium" >&2; exit 2; }
	$(INSTALL) playwright
	$(BIN)/python -m pytest tests/deploy/test_browser.py $(ARGS)

# Files and messages of strangers; what is found goes into FOUND of tests/fuzz, which the suite tries first.
fuzz: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -n 0 -m fuzz -o timeout=1800 tests/fuzz $(ARGS)

# The newest Flower and all that it asks for, in a folder of its own. It fails here first if Flower's insides have changed,
# or if Flower asks for other versions than those of constraints.txt. The version is named, or pip would take an older one.
canary: $(VENV)/.stamp-dev
	rm -rf $(VENV)/canary
	sed '/^flwr==/d' constraints.txt > $(VENV)/canary.txt
	$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/canary flwr
	newest=$$(PYTHONPATH=$(CURDIR)/$(VENV)/canary $(BIN)/python -c 'from importlib.metadata import version; print(version("flwr"))'); \
	    $(BIN)/python -m pip install --quiet --upgrade -c $(VENV)/canary.txt --target $(VENV)/canary flwr==$$newest
	PYTHONPATH=$(CURDIR)/$(VENV)/canary $(BIN)/python -c 'import flwr.supercore.version as found; print("flwr", found.package_version)'
	PYTHONPATH=$(CURDIR)/$(VENV)/canary $(BIN)/python -m pytest -n 0 -m "" \
	    tests/sites/transport/test_flower.py tests/sites/transport/test_forks.py tests/deploy $(ARGS)

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python benchmarks/structure.py

docs: $(VENV)/.stamp-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The wheel is built from the source archive, installed where nothing else is, and used outside of the checkout.
# Every extra can be installed beside every other at the versions of constraints.txt.
package: $(VENV)/.stamp-dev
	rm -rf dist $(VENV)/build $(VENV)/empty $(VENV)/core
	$(PYTHON) -m venv $(VENV)/build
	$(VENV)/build/bin/python -m pip install --quiet -c constraints.txt build
	$(VENV)/build/bin/python -m build --outdir dist .
	$(INSTALL) --dry-run '.[$(EXTRAS)]'
	$(PYTHON) -m venv $(VENV)/empty
	$(VENV)/empty/bin/python -m pip install --quiet --require-hashes -r requirements.txt
	$(VENV)/empty/bin/python -m pip install --quiet --no-index --no-deps dist/*.whl
	$(VENV)/empty/bin/python -m pip check
	folder=$$(mktemp -d); trap 'rm -rf $$folder' EXIT; bin=$(CURDIR)/$(VENV)/empty/bin; \
	    cp examples/own-table.csv $$folder/ && cd $$folder \
	    && $$bin/consilience --version \
	    && $$bin/consilience new patients --table own-table.csv --yes \
	    && $$bin/consilience run patients.toml --seeds 1 --set protocol.rounds=1 \
	    && $$bin/consilience papers --help > /dev/null \
	    && test -s runs/patients-001/report.html
	$(PYTHON) -m venv $(VENV)/core
	$(VENV)/core/bin/python -m pip install --quiet -c constraints.txt numpy scipy scikit-learn safetensors
	$(VENV)/core/bin/python -m pip install --quiet --no-index --no-deps dist/*.whl
	cd / && $(CURDIR)/$(VENV)/core/bin/python $(CURDIR)/tests/core/federation_alone.py

image: package
	$(CONTAINERS) build -f examples/deploy/compose/Dockerfile $(ARGS) \
	    -t consilience:$$($(VENV)/empty/bin/consilience --version | sed 's/.* //') .

bench: $(VENV)/.stamp-dev
	$(BIN)/python benchmarks/benchmarks.py

constraints:
	rm -rf $(VENV)/fresh
	$(PYTHON) -m venv $(VENV)/fresh
	$(VENV)/fresh/bin/python -m pip install --quiet '.[$(EXTRAS)]' build uv playwright
	$(VENV)/fresh/bin/python -m pip install --quiet --no-deps $(ORACLE)
	{ sed -n '/^#/p' constraints.txt; \
	  $(VENV)/fresh/bin/python -m pip freeze --exclude consilience | sed 's/+[A-Za-z0-9.]*$$//'; \
	} > constraints.new
	mv constraints.new constraints.txt
	{ sed -n '/^#/p' requirements.txt; \
	  $(VENV)/fresh/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	      --no-annotate --no-header -c constraints.txt $(DEPLOYED:%=--extra %) pyproject.toml; \
	} > requirements.new
	mv requirements.new requirements.txt
	rm -rf $(VENV)/fresh

clean:
	rm -rf site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
