# Two commands set everything up on a fresh machine: `make soak` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help soak test lint format docs wheel lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(VENV)/soak.stamp: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements.lock -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -c requirements.lock -e '.[demo,dev]'
	@touch $@ $(VENV)/soak.stamp

soak: $(VENV)/soak.stamp ## soak $$SOAKD_TARGET, or llama.cpp with a tiny Qwen3, for about a minute
	$(BIN)/soakd run --profile smoke $(if $(SOAKD_TARGET),,--demo)

test: $(VENV)/dev.stamp ## every test; those that need a database or Alertmanager skip where it is not installed
	$(BIN)/python -m pytest -m "not integration" -n auto
	$(BIN)/python -m pytest -m integration -n 2 --reruns 2

lint: $(VENV)/dev.stamp ## ruff, mypy strict, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## ruff format and its fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/dev.stamp ## docs/metrics.md from the catalogue
	$(BIN)/python -c "from soakd.metrics import catalogue, reference; print(reference(catalogue()), end='')" > docs/metrics.md

wheel: $(VENV)/dev.stamp ## dist/soakd-*.whl, with configs, alerts and dashboards inside
	$(BIN)/python -m build --wheel --outdir dist

lock: $(VENV)/dev.stamp ## pin what CI installs
	$(BIN)/python -m pip freeze --exclude-editable --exclude pip --exclude setuptools > requirements.lock

clean: ## remove what was built; never the data directory
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
