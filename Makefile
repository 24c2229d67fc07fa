# Every target sets up what it needs: a virtual environment in .venv with the tested versions.
# .venv belongs to this file: it is made from scratch when it is missing, when an installation was
# interrupted, when the checkout was moved, or when the Python that it was made with is gone.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A process for each processor, each with one thread: most tests compute with one anyway.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# The tested Python is 3.11. It is run, not looked up: a version manager's shim may lead nowhere.
ifndef PYTHON
PYTHON := $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
endif

# The stamp is written last and names the checkout that was installed.
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && cat $(STAMP) 2>/dev/null),$(CURDIR))
NEW_VENV := yes
.PHONY: $(STAMP)
endif

.PHONY: setup demo test test-all test-versions test-triton-oldest test-triton-newest check

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
ifdef NEW_VENV
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "error: dualwave needs Python 3.11 or newer, but $(PYTHON) is" \
	        "$$($(PYTHON) --version 2>&1); name another one: make PYTHON=/path/to/python3.11" >&2; \
	    exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
endif
	@rm -f $(STAMP)
	@echo "Installing dualwave and what it needs into $(VENV) (a few minutes the first time)"
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt setuptools
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation --editable '.[dev]'
	@echo "$(CURDIR)" > $(STAMP)

demo: setup
	$(BIN)/dualwave demo

test: setup
	$(PYTEST)

test-all: setup
	$(PYTEST) -m ''

# The kernels with the oldest Triton that pyproject.toml allows and with the newest release, each
# beside the same torch: only Triton is installed, into a folder that goes before the others.
test-versions: test-triton-oldest test-triton-newest

test-triton-oldest: TRITON := triton==3.6.0
test-triton-newest: TRITON := triton
test-triton-oldest test-triton-newest: test-triton-%: setup
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --upgrade \
	    --target $(VENV)/triton-$* '$(TRITON)'
	PYTHONPATH=$(CURDIR)/$(VENV)/triton-$* $(BIN)/python -c \
	    'import triton; print("Triton", triton.__version__, "from", triton.__path__[0])'
	PYTHONPATH=$(CURDIR)/$(VENV)/triton-$* $(BIN)/dualwave bench compile
	PYTHONPATH=$(CURDIR)/$(VENV)/triton-$* $(PYTEST) tests/kernels

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/typecheck.py
	$(BIN)/dualwave bench compile
