# make lab    install what a learner needs, and open the course (CPU=1: with the small build of PyTorch)
# make setup  install everything
# make test   check everything
# make browser  try the notebooks in JupyterLab with Chromium, on its own: it takes minutes
# make clean  remove what these made
#
# The stamp files say what is installed, so that a second run starts at once and needs no network.

VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PYTHON := $(BIN)/python
STAMPS := $(VENV)/stamps
# The first Python of 3.11 or later that can make a virtual environment; `make lab BASE_PYTHON=...` overrides it.
BASE_PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14 python; do \
	"$$p" -c "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))" >/dev/null 2>&1 && { echo "$$p"; break; }; done)
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt
# CPU=1 downloads PyTorch's build without CUDA: a tenth of the size, for machines without an NVIDIA GPU.
ifneq ($(CPU),)
PIP += --extra-index-url https://download.pytorch.org/whl/cpu
endif
JOBS ?= 2
NBVAL := $(PYTHON) -m pytest -p no:cacheprovider -p tests.conftest --nbval-lax --nbval-current-env --nbval-cell-timeout 120 \
	-n $(JOBS) --dist loadscope -q
SOLVED := build/solved
export OMP_NUM_THREADS ?= 1

.PHONY: lab setup test lint unit notebooks solved-notebooks browser clean
.DELETE_ON_ERROR:

lab: $(STAMPS)/lab
	$(BIN)/course lab

setup: $(STAMPS)/setup

test: $(STAMPS)/setup lint unit notebooks solved-notebooks
	@echo "All tests passed."

lint: $(STAMPS)/setup
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: $(STAMPS)/setup
	$(PYTHON) -m pytest -n $(JOBS) --dist loadgroup -q -m 'not browser'

notebooks: $(STAMPS)/setup
	$(NBVAL) notebooks

solved-notebooks: $(STAMPS)/setup
	rm -rf $(SOLVED)
	$(BIN)/course notebooks solve notebooks/*.ipynb -o $(SOLVED)
	$(NBVAL) $(SOLVED)

browser: $(STAMPS)/setup
	$(PYTHON) -m pytest tests/browser -q

$(STAMPS)/venv:
	@if [ ! -x $(PYTHON) ] && [ -z "$(BASE_PYTHON)" ]; then \
		echo "Sixteen Bytes needs Python 3.11 or newer with venv; found $$(python3 --version 2>&1 || echo none)." >&2; \
		echo "Install one (on Debian and Ubuntu: apt-get install python3 python3-venv), then run make again," >&2; \
		echo "or name it: make lab BASE_PYTHON=/path/to/python3.12" >&2; exit 1; fi
	@[ -x $(PYTHON) ] || { echo "Making $(VENV) with $(BASE_PYTHON)"; $(BASE_PYTHON) -m venv $(VENV); }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/lab: $(STAMPS)/venv pyproject.toml constraints.txt
	@echo "Installing what a learner needs (a minute or two, the first time only)"
	@$(PIP) -e ".[lab]" || { echo "Installing failed; see above. Run make again to go on." >&2; exit 1; }
	@touch $@

$(STAMPS)/setup: $(STAMPS)/venv pyproject.toml constraints.txt
	@echo "Installing everything, tests included (a few minutes, the first time only)"
	@$(PIP) -e ".[lab,test,hf,triton,workshop]" || { echo "Installing failed; see above. Run make again to go on." >&2; exit 1; }
	@touch $(STAMPS)/lab $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
