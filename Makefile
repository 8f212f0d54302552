# `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin

JOBS ?= 2
# Packages under test at once: several of them load both processors of a small machine.
TEST_JOBS ?= 1
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.Version=$(VERSION)
PYTHON := .venv/bin/python
LINT := go tool -modfile=tools/go.mod golangci-lint
BUF := go tool -modfile=tools/go.mod buf
COMMANDS := ./daemon/cmd/agentixd ./daemon/cmd/agentix ./runtime/cmd/agentix-runtime

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: build
build: ## build agentixd, agentix and agentix-runtime into bin/, all static
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(COMMANDS)

.PHONY: demo
demo: ## show the whole loop: a container, calls by CLI, curl, SDK and stub, events
	@scripts/demo.sh

.PHONY: figures
figures: ## measure create to first result and a warm call, by the stub and by the SDK
	@scripts/figures.sh

.PHONY: test
test: deps ## run all tests, as CI does; installs what it needs (root on Debian)
	@scripts/test.sh

.PHONY: deps
deps: ## install what the tests need: containerd, runc, mmdebstrap, a Python environment
	@scripts/deps.sh containers python demo js
	@scripts/venv.sh dev

.PHONY: generate
generate: venv-dev ## generate gen/ from proto/
	@scripts/generate.sh

.PHONY: check-generate
check-generate: generate ## fail if gen/ is not what proto/ gives
	git diff --exit-code -- gen
	@test -z "$$(git status --porcelain -- gen)" || { git status --short -- gen; exit 1; }

.PHONY: lint
lint: venv-dev ## lint Go, protos and Python
	@scripts/check-spec.sh
	$(BUF) lint
	$(BUF) format --diff --exit-code proto
	$(LINT) run ./...
	$(PYTHON) -m ruff check worker sdk/python examples scripts
	$(PYTHON) -m ruff format --check sdk/python examples
	cd worker && ../$(PYTHON) -m mypy src
	cd sdk/python && ../../$(PYTHON) -m mypy src
	cd test/interop && ../../$(PYTHON) -m ruff check . && ../../$(PYTHON) -m ruff format --check . && ../../$(PYTHON) -m mypy
	cd sdk/python && ../../$(PYTHON) -m interrogate -q src

.PHONY: test-unit
test-unit: build venv-dev ## Go tests with the race detector, the process provider and the end-to-end tests among them
	go build -race -p $(JOBS) ./...
	go test -race -timeout 30m -p $(TEST_JOBS) ./...

.PHONY: test-containerd
test-containerd: build ## the provider contract and the end-to-end tests on real containers (root)
	@scripts/deps.sh containers
	go test -tags containerd -timeout 30m -count=1 -p 1 $$(scripts/containerd-packages.sh)

.PHONY: test-docker
test-docker: ## the provider contract on a Docker Engine of the tests' own (root)
	@scripts/deps.sh docker
	go test -tags docker -timeout 15m -count=1 ./providers/docker

.PHONY: test-faults
test-faults: ## kill, cut, stop and starve real processes under load; AGENTIX_FAULTS=long for 1 000 rounds (root)
	@scripts/deps.sh containers faults
	go test -tags faults,containerd -timeout 90m -count=1 -v ./test/faults

.PHONY: test-python
test-python: venv-dev build ## Python tests of the worker and of the SDK
	cd worker && ../$(PYTHON) -m pytest -q
	cd sdk/python && ../../$(PYTHON) -m coverage run -m pytest -q && ../../$(PYTHON) -m coverage report --skip-covered

.PHONY: test-interop
test-interop: ## neighbours' hosts at our runtime and worker, and their table
	@scripts/interop.sh hosts

.PHONY: interop
interop: build ## the table of all neighbours at all our ends; with UPSTREAM_PYTHON the upstream's own
	@scripts/interop.sh all

.PHONY: interop-full
interop-full: build ## the same in the long form: 10 000 calls over 200 cuts, a million lines, 200 MiB
	@scripts/interop.sh full

.PHONY: test-demo
test-demo: build ## the demo, and that it leaves nothing on the host
	@scripts/census.sh make --no-print-directory demo

.PHONY: fuzz-short
fuzz-short: ## each fuzz test for a fixed number of executions
	@scripts/fuzz.sh

.PHONY: cover
cover: ## coverage of the Go packages
	go test -coverprofile=cover.out ./... && go tool cover -func=cover.out | tail -n 1

.PHONY: clean
clean: ## remove what was built and the state of the demo
	rm -rf bin dist cover.out .state

.PHONY: venv-dev
venv-dev:
	@scripts/deps.sh python
	@scripts/venv.sh dev
