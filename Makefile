# Everything a developer or CI runs. `make` alone lists it.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help setup setup-run run test test-all test-programs check example bench bench-full image try-image docs golden kernels test-kernels lock format clean

PY := .venv/bin/python
# JAVA_HOME and PYSPARK_PYTHON, as set-up found them
ENV := source .make/env;
ARGS ?=
# three files at a time, because tests wait for processes half of their time; a process that dies fails the run at once (pytest-xdist waits forever after it has replaced one)
SIDE_BY_SIDE := -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 25 --durations-min 5

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## .venv from the lock, jars in .jars, compiled kernels
	@tools/setup.sh dev

setup-run: # the same without the tools of developers
	@tools/setup.sh run

run: setup-run ## the live demonstration: broker, Spark, sidecar, producer, page
	@$(ENV) exec $(PY) -m vernier.service.supervision.demo $(ARGS)

example: setup-run ## an example of examples/ at the moments that it shows (NAME=fraud_rings; none lists them)
	@$(ENV) exec $(PY) tools/example.py $(NAME) $(ARGS)

test: setup test-programs ## the tests for every change, three files at a time (ARGS="-k name" for some, one by one)
	@$(ENV) exec $(PY) -m pytest $(or $(ARGS),-m "not slow" $(SIDE_BY_SIDE))

test-all: setup test-programs ## every test, with all random cases
	@$(ENV) HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} exec tools/test-all.sh $(or $(ARGS),$(SIDE_BY_SIDE))

test-programs: # Chromium and Prometheus, which some tests need; installed as root on Debian, otherwise named as missing
	@tools/test-programs.sh

check: setup ## format, lint, types, layers, prose, the documentation, duplicate code, lock
	@tools/check.sh

bench: setup ## the short benchmarks
	@$(ENV) exec $(PY) -m bench $(ARGS)

bench-full: setup ## all benchmarks, at full size
	@$(ENV) exec $(PY) -m bench --full $(ARGS)

image: setup ## the container image, with docker, podman or buildah
	@tools/image.sh $(ARGS)

try-image: setup ## build the image, start the service inside it and query it over HTTP; also without a container engine
	@tools/try-image.sh

docs: setup ## the documentation as pages, in build/docs
	@$(PY) -m mkdocs build --strict --site-dir build/docs && echo "docs: build/docs/index.html"

golden: setup ## rewrite the golden files from what the code says now; review the diff
	@$(ENV) exec $(PY) -m pytest tests/golden tests/examples/test_output.py tests/docs/test_reference.py tests/docs/test_rooms.py tests/docs/test_notebook.py --update-golden $(ARGS)

kernels: setup ## compile the numba kernels again, from nothing
	@$(PY) -m vernier.service.toolchain.setup kernels --force

test-kernels: setup ## the kernels' own tests with every index checked, and interpreted
	@$(ENV) exec tools/test-kernels.sh $(ARGS)

lock: setup ## write requirements.lock (and the images' parts of it) anew from pyproject.toml (ARGS=--upgrade for the newest)
	@.venv/bin/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-header --no-emit-find-links --no-emit-index-url --quiet $(ARGS) --output-file requirements.lock
	@.venv/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --constraints requirements.lock \
		--no-header --no-emit-find-links --no-emit-index-url --quiet --output-file docker/requirements.lock
	@.venv/bin/uv pip compile pyproject.toml --extra s3 --universal --python-version 3.11 --generate-hashes --constraints requirements.lock \
		--no-header --no-emit-find-links --no-emit-index-url --quiet --output-file docker/cluster.lock

format: setup ## format the code and correct what ruff can correct
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format --quiet .

clean: ## remove all that make has built
	@rm -rf .venv .jars .make build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	@find . -path ./.git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
