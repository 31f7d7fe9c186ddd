# `make help` lists what there is. Everything here needs only python3 (3.11 or later) and make; cargo is used where it is there.

VENV ?= .venv
PY   := $(VENV)/bin/python

# The native core is built if cargo is there; STREAMER_BUILD_RUST=1 insists, 0 leaves it out (setup.py decides in the end).
CARGO := $(shell cargo --version >/dev/null 2>&1 && echo cargo)
RUST  := $(if $(filter 0,$(STREAMER_BUILD_RUST)),,$(if $(filter 1,$(STREAMER_BUILD_RUST)),yes,$(if $(CARGO),yes)))
KIND  := $(if $(RUST),native,pure)

# Tests start Python thousands of times: it reads what it compiled before, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

# All that builds Rust, pip with its interpreters for the moment too, builds for this one: for another, everything would be built anew.
export PYO3_PYTHON := $(abspath $(PY))

RUST_SOURCES := $(shell find Cargo.toml Cargo.lock crates -name target -prune -o -type f \( -name '*.rs' -o -name 'Cargo.*' \) -print 2>/dev/null)

# Tests of a file share a worker, with what is expensive to start or there but once: a session of Spark, a port.
# Files have their turns as tests/conftest.py orders them; by default those of few tests come last, which are the longest.
# What pytest runs: TEST names files or folders, BACKEND one backend; all of it on all backends that are here, if neither is given.
PYTEST = STREAMER_BACKEND=$(or $(BACKEND),$(if $(RUST),auto,reference)) $(PY) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --durations 20 $(TEST)

SPARK_VERSIONS = STREAMER_BACKEND=$(if $(RUST),native,reference) $(PY) -m tests.tools.spark_versions

# The reference always runs; the native engine wherever this version has one and its core was built.
BACKENDS = $(shell STREAMER_BACKEND=reference $(PY) -c 'from streamer import _backend; print(*reversed(_backend.available()))')

.DEFAULT_GOAL := help
.PHONY: help demo season test static all-at-once rest test-all test-integration spark-versions lint types format docs site rust peers pytest slow wheel check-wheel wheels trained first-hour fuzz golden bench bench-smoke console install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.demo-$(KIND) ## replay the flights that left New York in 2013 against subscriptions of every kind
	@$(if $(RUST),,STREAMER_BACKEND=reference) $(PY) -m examples.flights
	@printf '%s\n' 'Next, with what is now in $(VENV):' '' '  source $(VENV)/bin/activate' '  cd examples' \
	  '  streamer match -s subscriptions.jsonl --output table events.jsonl' '' 'README.md goes on from there.'

season: $(VENV)/.dev-$(KIND) ## draw docs/filters.png: how the filters do while subscribers come and go for a year
	@$(if $(RUST),,STREAMER_BACKEND=reference) $(PY) -m examples.flights.season --plot docs/filters.png

test: $(if $(TEST),pytest,static $(if $(AT_ONCE),all-at-once,pytest)) ## what a change must pass: lint, types, Rust, pytest on each backend; TEST=tests/bloom BACKEND=native: a part
	@echo "make test: passed on: $(or $(BACKEND),$(BACKENDS))$(if $(RUST),, (no cargo: the native core and its checks were left out))"

test-all: $(if $(TEST),slow,test) ## `make test`, the tests that take long, the site, an installed wheel, older versions of Spark for a change to streamer/spark; with TEST: a part with what takes long in it
	$(if $(TEST)$(AT_ONCE),,@$(PAIRED) slow rest)
	$(if $(TEST),,@$(SPARK_VERSIONS) --if-changed)
	@echo "make test-all: passed"

test-integration: $(VENV)/.dev-$(KIND) $(if $(TEST),,peers spark-versions) ## what test-all leaves out: rounds that are recorded, a broker of Kafka that is fetched, the peers' crate, older versions of Spark
	STREAMER_BACKEND=$(or $(BACKEND),auto) $(PY) -m pytest -q -m integration $(TEST)

# Two at a time, since one core alone is busy for much of each.
PAIRED = $(MAKE) --no-print-directory -j2

# On a new machine Rust is tested while packages are installed, since it needs only an interpreter. What a command prints comes when
# it ends.
static: ## types, Rust and lint, two at a time
	@$(PAIRED) $(if $(filter output-sync,$(.FEATURES)),--output-sync=line) types rust lint $(VENV)/.collected

# The first process that collects the tests writes their bytecode, which takes longer than all else there is to collecting. Without
# this each worker of pytest would write it.
$(VENV)/.collected: | $(VENV)/.dev-$(KIND)
	@$(PY) -m pytest -q --collect-only >/dev/null
	@touch $@

# Many tests wait for servers, and the rest uses the processors meanwhile.
all-at-once: ## with AT_ONCE=1: all tests, and the rest at the same time
	@$(PAIRED) pytest rest

rest: $(VENV)/.dev-$(KIND) ## what `make test-all` checks apart from tests
	@nice -n 5 $(MAKE) --no-print-directory check-wheel site

lint: $(VENV)/.dev-$(KIND) ## ruff: rules and formatting
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

# Stubtest reads no cache and yet writes one, in the current directory, which mypy would then check all anew for.
types: $(VENV)/.dev-$(KIND) ## mypy --strict, and stubtest of the native core's stub
	$(PY) -m mypy
	@if $(PY) -c 'import streamer._native' 2>/dev/null; then set -x; cd $(VENV); $(abspath $(PY)) -m mypy.stubtest --mypy-config-file $(CURDIR)/pyproject.toml streamer._native; \
	else echo "stubtest: left out, there is no native core here"; fi

format: $(VENV)/.dev-$(KIND) ## format Python and Rust, and mend what ruff can mend
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .
	$(if $(RUST),cargo fmt --all)

docs: $(VENV)/.dev-$(KIND) ## write what is generated: the JSON Schema, the tables of configuration, the docstrings of the stub
	$(PY) -m docs.generate

site: $(VENV)/.dev-$(KIND) ## build the documentation as a site in site/; a broken link is an error
	@$(PY) -m docs.site

# clippy compiles all targets; what is no test need not be linked, too. With one profile both use the same macros and build scripts.
rust: | $(PY) ## rustfmt, clippy and the tests of the Rust workspace
ifeq ($(RUST),yes)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked $(if $(RUST_PROFILE),--profile $(RUST_PROFILE)) -- -D warnings
	cargo test --workspace --tests --locked --profile $(or $(RUST_PROFILE),test)
else
	@echo "rust: left out, there is no cargo here; everything runs on the reference"
endif

# Where clippy has checked what both need.
peers: ## compile the benchmark that compares other engines, which is a workspace of its own
	$(if $(RUST),cargo check --quiet --locked --manifest-path benchmarks/peers/rust/Cargo.toml --target-dir target)

pytest: $(VENV)/.dev-$(KIND) ## the tests that are quick, on each backend; AT_ONCE=1: with those that are slow
	$(PYTEST) $(if $(AT_ONCE),-m 'not integration')

slow: $(VENV)/.dev-$(KIND) ## the tests that are slow, on each backend
	$(PYTEST) -m '$(if $(TEST),,slow and )not integration'

spark-versions: $(VENV)/.dev-$(KIND) ## all tests of Spark, and some on each PySpark before the newest: one in .venv-spark-VERSION, next to .venv
	@$(SPARK_VERSIONS)

wheel: | $(PY) ## build a wheel for this machine into dist/, without the tools of development
	@echo "building a wheel $(if $(RUST),with the native core: some minutes,without the native core)"
	@rm -rf build
	@$(PY) -m pip wheel --no-deps --wheel-dir dist .
	@echo "Install it with: pip install $$(ls -t dist/*.whl | head -1)"

check-wheel: $(VENV)/.dev-$(KIND) ## build a wheel, install it elsewhere, run the table of cases and the API tests against it
	@$(PY) -m tests.tools.check_wheel

wheels: $(VENV)/.dev-$(KIND) ## build the wheel for any Linux with glibc 2.28 or later into dist/, check it, and try it
	@$(PY) -m tests.tools.build_wheels

trained: $(VENV)/.dev-$(KIND) ## lay the checkout's core out as that of a wheel, by what runs while it is trained: what benchmarks measure
	@$(PY) -m tests.tools.trained

first-hour: $(VENV)/.dev-$(KIND) ## what a newcomer meets: size and CPU of a plain installation against their goals, README and tutorials in it; WHEEL=FILE RECORD=1
	@$(PY) -m tests.tools.first_hour $(if $(RECORD),--record) $(WHEEL)

fuzz: $(VENV)/.dev-$(KIND) ## properties, native next to reference, cargo-fuzz, Miri: SECONDS (600) in all, or only TARGETS
	@$(PY) -m tests.tools.fuzz --seconds $(or $(SECONDS),600) $(TARGETS)

golden: $(VENV)/.dev-$(KIND) ## compare records of the real Debezium engine, from Maven, with the committed ones, and matches with the answers of PostgreSQL and MariaDB
	STREAMER_BACKEND=$(or $(BACKEND),auto) $(PY) -m pytest -q -m integration tests/cdc/test_golden.py

bench: $(VENV)/.dev-$(KIND) ## run the benchmarks; see benchmarks/README.md
	@set -e; for backend in $(BACKENDS); do export STREAMER_BACKEND=$$backend; $(PY) -m benchmarks; $(PY) -m benchmarks.edge; $(PY) -m benchmarks.bloom; $(PY) -m benchmarks.changes; $(PY) -m benchmarks.lowered; $(PY) -m benchmarks.operators; $(PY) -m benchmarks.real; done
	@if $(PY) -c 'import streamer._native' 2>/dev/null; then $(PY) -m benchmarks.cel; $(PY) -m benchmarks.load; fi
	@if command -v java >/dev/null; then $(PY) -m benchmarks.spark; else echo "benchmarks.spark: left out, there is no java here"; fi

bench-smoke: TEST = tests/test_benchmarks.py tests/test_spark_benchmarks.py
bench-smoke: $(VENV)/.dev-$(KIND) ## run every benchmark on a little data, and check its match counts
	$(PYTEST) -m 'not integration'

console: $(VENV)/.dev-$(KIND) ## the tests of the console in a browser, and the pictures of docs/console.md
	STREAMER_PICTURES=1 $(PY) -m pytest -q -m 'not integration' $(wildcard tests/service/test_console*.py)

install: $(VENV)/.dev-$(KIND) ## create .venv and install Streamer into it, editable, with the tools of development

clean: ## remove what was built, and the environments
	rm -rf $(VENV) .venv-spark-* build dist site target .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info streamer/_native*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Compat: a path, which type checkers and editors follow; setuptools' own way is an import hook, which they do not run.
# A stamp per kind, so that switching STREAMER_BUILD_RUST reinstalls, and a second `make test` does not.
$(VENV)/.%-native: pyproject.toml setup.py $(RUST_SOURCES) | $(PY)
	@echo "installing into $(VENV), and building the native core: some minutes the first time"
	$(PY) -m pip install -qq --config-settings editable_mode=compat --editable '.[$*]'
	@rm -f $(VENV)/.*-pure; touch $@

$(VENV)/.%-pure: pyproject.toml setup.py | $(PY)
	@echo "without the native core ($(if $(CARGO),STREAMER_BUILD_RUST=0,there is no cargo here)): everything runs on the reference"
	@rm -f streamer/_native*.so
	$(PY) -m pip install -qq --config-settings editable_mode=compat --editable '.[$*]'
	@rm -f $(VENV)/.*-native; touch $@

$(PY):
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python3.14 python; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "creating $(VENV) with $$($$python --version) ($$python)"; \
	    $$python -m venv $(VENV) || { rm -rf $(VENV); echo "make: $$python has no working venv module; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	    $(PY) -m pip install --quiet --upgrade pip; exit 0; \
	  fi; \
	done; echo "make: Streamer needs Python 3.11 or later, and none is on PATH; name one with PYTHON=/path/to/python3" >&2; exit 1
