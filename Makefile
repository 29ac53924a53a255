# Everything happens in .venv; nothing is installed outside of it but Chromium, for the browser tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := build/demo
LAB := build/lab
# What `make check` compares with, and after how long it begins no further test.
SINCE := HEAD
SECONDS := 80
# Of `make fuzz`: each round draws other examples; a round that failed is drawn again with the SEED it printed and ROUNDS=1. Damaged
# files are drawn for FUZZ_SECONDS, so long again files with corrupt values, and by each fuzzer that is guided by coverage.
SEED := $(shell date +%s)
ROUNDS := 10
FUZZ_SECONDS := 60
INTERRUPTS := 25

# The tests start hundreds of processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check fuzz lab lint unit static js chromium native wheels clean bench diagnosis answers assistant

# The compiled readers: sources, and what compiles them.
NATIVE := $(wildcard nbprof/native/*.c nbprof/native/*.h) nbprof/native/compile.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); $(PYTHON) -m pip install --user --break-system-packages virtualenv && $(PYTHON) -m virtualenv $(VENV); }
	$(BIN)/python -m pip install --quiet --upgrade pip

# The installed product: a wheel built from this tree, JavaScript included.
$(VENV)/.demo: $(BIN)/python pyproject.toml hatch_build.py package-lock.json $(NATIVE) $(shell find nbprof js -name '*.py' -o -name '*.ts' -o -name '*.css' 2>/dev/null)
	rm -rf nbprof/static/*.js* nbprof/labextension
	$(BIN)/python -m pip install --quiet ".[demo]"
	rm -f $(VENV)/.test
	touch $@

# An editable install links the folder of the extension, so the next one finds the file there that the wheel adds.
$(VENV)/.test: $(BIN)/python pyproject.toml package-lock.json
	npm ci --no-audit --no-fund
	rm -f nbprof/labextension/install.json
	$(BIN)/python -m pip install --quiet -e ".[test]"
	rm -f $(VENV)/.demo
	touch $@ $(VENV)/.native

# Where there is no C compiler, PyPI has one.
$(VENV)/.native: $(VENV)/.test $(NATIVE)
	$(BIN)/python nbprof/native/compile.py || \
		{ $(BIN)/python -m pip install --quiet ziglang && $(BIN)/python nbprof/native/compile.py; }
	touch $@

## The compiled readers anew where a source has changed.
native: $(VENV)/.native

## Profile a small training run and write the executed notebook and the report.
demo: $(VENV)/.demo
	@mkdir -p $(OUT)
	cp notebooks/quickstart.ipynb $(OUT)/quickstart.ipynb
	cd $(OUT) && TF_CPP_MIN_LOG_LEVEL=2 "$(CURDIR)/$(BIN)/python" -m jupyter nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.store_widget_state=False quickstart.ipynb
	@echo
	@echo "Executed notebook:  $(OUT)/quickstart.ipynb   (open it with: make lab)"
	@echo "One-file report:    $(OUT)/report.html        (open it in any browser; it needs no network)"

## Everything: linters, types, unit tests of both languages, and the product in a real browser.
# The types of Python, which one core checks, and those of TypeScript are checked beside the first tests.
test: $(VENV)/.test native
	$(MAKE) --no-print-directory --jobs 2 static chromium
	$(MAKE) --no-print-directory --jobs 3 lint js unit

# What pages and JupyterLab load.
static: $(VENV)/.test
	PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build
	$(BIN)/jupyter-builder develop --overwrite .

js: $(VENV)/.test
	npm run --silent typecheck
	npm run --silent lint
	npm run --silent test

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

chromium:
	bash tests/e2e/install-chromium.sh

# A worker more than there are cores: a test waits for its processes, its browser or its kernel about a third of its time. Bytecode is
# written, wherever it is turned off: each of the processes that tests start would compile the package anew.
unit: $(VENV)/.test native chromium
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=10 --durations-min=1

## Between two edits: linters, types, and the tests nearest to the files changed, in at most 90 s on two cores.
check: $(VENV)/.test native
	@until=$$(($$(date +%s) + $(SECONDS))) && $(MAKE) --no-print-directory lint && \
		PATH="$(CURDIR)/$(BIN):$$PATH" python -m tests.support.check $$until $(SINCE)

## Property tests on examples drawn at random, damaged files of every format, two readers by atheris, and Ctrl-C in INTERRUPTS cells a framework.
fuzz: $(VENV)/.test native
	$(BIN)/python -m tests.fuzz.native --seed $(SEED) --seconds $(FUZZ_SECONDS)
	for round in $$(seq 0 $$(($(ROUNDS) - 1))); do \
		seed=$$(($(SEED) + round)); \
		echo "This round again: make fuzz SEED=$$seed ROUNDS=1"; \
		$(BIN)/python -m pytest -q -n 2 -m hypothesis --hypothesis-profile=fuzz --ignore tests/e2e --hypothesis-seed=$$seed || exit 1; \
	done
	$(BIN)/python -m tests.fuzz.readers --seed $(SEED) --seconds $(FUZZ_SECONDS) --keep build/fuzz/finds
	$(BIN)/python -m tests.fuzz.values --seed $(SEED) --seconds $(FUZZ_SECONDS)
	$(BIN)/python -m pip install --quiet atheris
	mkdir -p build/fuzz/chrome build/fuzz/xspace
	for reader in chrome xspace; do \
		$(BIN)/python -m tests.fuzz.$$reader build/fuzz/$$reader -seed=$$(($(SEED) % 4294967296)) -max_total_time=$(FUZZ_SECONDS) \
			-max_len=4096 -artifact_prefix=build/fuzz/ || exit 1; \
	done
	$(BIN)/python -m tests.fuzz.interrupts --count $(INTERRUPTS) --seed $(SEED)

## JupyterLab on the notebooks and on small profiles: files, and a logdir with two runs. What you change there stays.
lab: $(VENV)/.demo
	mkdir -p $(LAB)/profiles/logdir/plugins/profile/jax $(LAB)/profiles/logdir/plugins/profile/tensorflow
	for from in notebooks/*.ipynb; do to=$(LAB)/$${from##*/}; [ -e $$to ] || cp $$from $$to; done
	if [ -e $(OUT)/quickstart.ipynb ]; then cp $(OUT)/quickstart.ipynb $(LAB)/quickstart-executed.ipynb; fi
	cp tests/data/xspace/tf_cpu.xplane.pb $(LAB)/profiles/tensorflow.xplane.pb
	cp tests/data/kineto/cpu_train.pt.trace.json.gz $(LAB)/profiles/pytorch.pt.trace.json.gz
	cp tests/data/chrome/jax_cpu.trace.json.gz $(LAB)/profiles/jax.trace.json.gz
	cp tests/data/xspace/jax_loop.xplane.pb $(LAB)/profiles/logdir/plugins/profile/jax/host-a.xplane.pb
	cp tests/data/xspace/tf_cpu.xplane.pb $(LAB)/profiles/logdir/plugins/profile/tensorflow/host-a.xplane.pb
	$(BIN)/python -m jupyter lab --notebook-dir=$(LAB) $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB_OPTIONS)

bench: $(VENV)/.test
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/to_dashboard.py
	$(BIN)/python benchmarks/growth.py --repeats 1 --largest 1000000
	$(BIN)/python -m pip install --quiet -e ".[bench]"
	$(BIN)/python benchmarks/decode.py --sizes 100k,1M
	$(BIN)/python benchmarks/analysis.py

## How true the diagnosis is: programs with a planted problem each, or none, and what nbprof says of them.
diagnosis: $(VENV)/.test
	$(BIN)/python benchmarks/diagnosis --store benchmarks/diagnosis/measured.json
	$(BIN)/python benchmarks/workers.py

## How often there is an answer, and how often it is right: ordinary cells, published files and traces with known periods.
answers: $(VENV)/.test
	$(BIN)/python benchmarks/answers --store benchmarks/answers/measured.json

## Whether an assistant finds the bottleneck of planted programs through the tools of `nbprof mcp`, by a scripted reader.
assistant: $(VENV)/.test
	$(BIN)/python benchmarks/assistant

## Wheels for every platform, and the source distribution, in dist/; their sizes.
wheels: $(VENV)/.test
	$(BIN)/python -m pip install --quiet build ziglang "hatchling>=1.27" "hatch-jupyter-builder>=0.9.1" "jupyter-builder>=1.2,<2"
	rm -rf dist
	$(BIN)/python -m build --no-isolation --sdist
	for target in $$($(BIN)/python nbprof/native/compile.py --targets); do \
		NBPROF_TARGET=$$target $(BIN)/python -m build --no-isolation --wheel || exit 1; \
	done
	$(BIN)/python -m tests.support.wheels dist

clean:
	rm -rf $(VENV) node_modules lib build dist nbprof/static/*.js* nbprof/labextension
	rm -f nbprof/native/*.so nbprof/native/*.dylib nbprof/native/*.dll
