# A fresh machine with Python 3.11 and make: `make demo` or `make test`, nothing else first.
# Each target installs what it needs into .venv once; after that it starts at once.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
EXE := .exe
else
BIN := $(VENV)/bin
endif
# Two workers take half of the tests each, in order, so that what a file of tests shares is made once.
TESTS := $(BIN)/python -m pytest -n 2 --dist worksteal -q

.PHONY: help demo docs docs-check classroom front test test-avx2 test-all mutants browser format lint results results-train bench bench-peers web web-check clean

help:
	@echo "make demo       train on dates, evaluate, show a few predictions and the report (a few minutes; it says how long)"
	@echo "make test       the tests; it says first how long they take here"
	@echo "make test-avx2  the tests of numbers again, as on a processor without AVX-512"
	@echo "make test-all   the slow tests too"
	@echo "make mutants    change the package in 100 places, one at a time, and see which changes no test notices (hours)"
	@echo "make browser    a Chromium for the tests of the page, where there is none (Debian: apt-get)"
	@echo "make format     ruff format on every Python file"
	@echo "make lint       ruff and pyright"
	@echo "make docs       the documentation, in docs/_build/html/index.html; runs the cells of the book"
	@echo "make docs-check the built documentation in a browser: links, contrast, widths, weights; the worked examples"
	@echo "make classroom  the documentation, notebooks, trained models and data as one zip file, for a room without network"
	@echo "make front      the first picture of README again, and the page beside it, from the weights in docs/front"
	@echo "make results    RESULTS.md again, from the run folders in runs/results; results-train trains what is missing (hours)"
	@echo "make bench      how fast it is beside others, as one table (docs/speed.md); first bench-peers, which installs them"
	@echo "make web        build the page of 'glassformer explain' (needs Node 20)"
	@echo "make web-check  the page's types, and that the built page is the one its sources give"
	@echo "make clean      remove .venv and caches; your runs/ stay"

demo: $(VENV)/.installed
	$(BIN)/glassformer demo

# With CI=true a fault that breaks everything ends after 50 failures, not after as many times of waiting.
test: $(VENV)/.installed-test
	@$(BIN)/python -m tests.helpers.announce
	$(TESTS) -m "not slow" $(if $(CI),--maxfail=50)

# The numeric parts as on a processor without AVX-512.
test-avx2: $(VENV)/.installed-test
	ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 FBGEMM_ENABLE_INSTRUCTIONS=AVX2 \
		$(TESTS) -m "not slow" tests/nn tests/models tests/decode tests/golden tests/utils

test-all: $(VENV)/.installed-test
	GLASSFORMER_KILLS=200 $(TESTS)

# SEED chooses other mutants: make mutants SEED=2. What the tests execute is measured first, and kept until it is removed.
SEED := 1
mutants: $(VENV)/.installed-test build/mutants/executed
	$(BIN)/python -m tests.mutants build/mutants/$(SEED).json --executed build/mutants/executed --seed $(SEED)

build/mutants/executed:
	COVERAGE_FILE=$(CURDIR)/$@ $(TESTS) -m "not slow" --cov=src/glassformer --cov-context=test --cov-report=

# Without a browser the tests of the page are skipped, except where CI=true: there they fail.
browser:
	@for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$name >/dev/null && exit 0; done; \
	command -v apt-get >/dev/null || { echo "Install Chromium, so that 'chromium' is on the PATH." >&2; exit 1; }; \
	if [ "$$(id -u)" = 0 ]; then as=; else as=sudo; fi; \
	get="$$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"; \
	$$as apt-get update -qq && { $$get chromium-headless-shell || $$get chromium; }

format: $(VENV)/.installed-test
	$(BIN)/ruff format .

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python$(EXE)

# Warnings are errors. The runs of the book and the cells' outputs are kept until what they depend on changes.
docs: $(VENV)/.installed-docs
	$(BIN)/python docs/book/runs.py
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -W --keep-going -j 2 -q -E -a docs docs/_build/html

# The built site in a browser, from disk; the worked examples for contributors, and the files that commands execute.
docs-check: docs $(VENV)/.installed-test
	CI=true $(TESTS) -m "not slow" docs/checks

classroom: docs
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(BIN)/python docs/classroom.py

front: $(VENV)/.installed
	$(BIN)/python docs/front_picture.py

results: $(VENV)/.installed
	$(BIN)/python -m benchmarks.results

results-train: $(VENV)/.installed
	$(BIN)/python -m benchmarks.results --train

# BENCH holds more flags: make bench BENCH="--only a,i --repeats 9".
bench: $(VENV)/.installed
	@$(BIN)/python -m benchmarks.speed --json build/bench/speed.json $(BENCH)

bench-peers: $(VENV)/.installed
	$(BIN)/python -m benchmarks.speed.install

web: web/node_modules/.installed $(VENV)/.installed
	$(BIN)/python -m glassformer.explain.page.typescript > web/src/types.ts
	$(BIN)/python web/terms.py > web/src/terms.ts
	cd web && npm run --silent build

web-check: web/node_modules/.installed $(VENV)/.installed-test
	$(BIN)/python -m glassformer.explain.page.typescript | diff - web/src/types.ts
	$(BIN)/python web/terms.py | diff - web/src/terms.ts
	cd web && npm run --silent check && npm run --silent test && npm run --silent build -- --outdir=../build/web
	diff -r build/web src/glassformer/explain/page/static
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/interop/test_onnx.py -k javascript

clean:
	rm -rf $(VENV) web/node_modules .pytest_cache .ruff_cache .hypothesis build docs/_build

# Stamps: remade when what there is to install changes.
$(VENV)/.installed: $(BIN)/python$(EXE) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-test: $(BIN)/python$(EXE) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $(VENV)/.installed $@

$(VENV)/.installed-docs: $(BIN)/python$(EXE) pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $(VENV)/.installed $@

$(BIN)/python$(EXE):
	@test -n "$(PYTHON)" || { echo "No python3 here: install Python 3.11 or newer." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Glassformer needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V`. Try: make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

web/node_modules/.installed: web/package.json web/package-lock.json
	cd web && npm ci --silent
	@touch $@
