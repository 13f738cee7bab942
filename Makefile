# The tasks of this repository; `make` alone lists them.
# What needs an installation makes it first: `make demo` and `make test` work on a fresh clone.

PYTHON ?= python3
BIN := .venv/bin
MODEL ?= smollm2-135m-instruct

.DEFAULT_GOAL := help
.PHONY: help install dev model demo test check fmt fmt-check lint types contracts security audit wheel bench bench-long chaos soak scale bench-overhead bench-gateway bench-scheduler bench-gate calibrate figures pre-commit pins clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Install vLLM for this machine and Autellix into .venv
	@$(PYTHON) ops/install.py

dev:
	@$(PYTHON) ops/install.py --dev

model: install ## Prepare the built-in model
	@$(BIN)/python -m autellix.engine.vllm_adapter.models $(MODEL)

demo: model ## Start everything and run a demonstration
	@$(BIN)/python -m autellix.client.demo

test: dev ## Run the tests
	@$(BIN)/pytest

check: fmt-check lint types contracts security audit test ## Everything a change must pass

fmt: dev ## Format the code and sort its imports
	@$(BIN)/ruff check --quiet --select I --fix .
	@$(BIN)/ruff format .

fmt-check: dev
	@$(BIN)/ruff format --check .

lint: dev ## Look for mistakes
	@$(BIN)/ruff check .

types: dev ## Check the types
	@$(BIN)/mypy

contracts: dev ## Check who imports whom
	@$(BIN)/lint-imports

security: dev ## Look for what an attacker could use
	@$(BIN)/bandit -q -c pyproject.toml -r client engine schemas services ops

audit: dev ## Ask whether a pinned package has a known vulnerability
	@$(BIN)/python ops/audit.py

wheel: dev ## Build the wheel and the source archive into dist/
	@$(BIN)/python -m build --no-isolation .

bench: install ## Compare Autellix with vLLM as it comes, on recorded programs (a quarter of an hour)
	@$(BIN)/autellix bench compare ops/bench/suites/short.toml --again

bench-long: install ## The same with every system and workload; goes on where it stopped (takes a day)
	@$(BIN)/autellix bench compare ops/bench/suites/long.toml --json ops/bench/results/bench-long.json --png ops/bench/results/figures

chaos: install ## Kill, freeze and restart every process under load, and count what is lost (ten minutes)
	@$(BIN)/python ops/bench/chaos.py

soak: install ## Keep everything at full load, and see whether memory stays flat (half an hour)
	@$(BIN)/python ops/bench/soak.py

scale: install ## 2,048 programs on 64 simulated engines, 1,000 streams at once (ten minutes a rate)
	@$(BIN)/python ops/bench/scale.py --json ops/bench/results/scale.json

bench-overhead: install ## Measure what the pipeline adds to a call
	@$(BIN)/python ops/bench/overhead.py

bench-gateway: install ## Measure what the way through the gateway costs against vLLM's own server
	@$(BIN)/python ops/bench/gateway.py

bench-scheduler: install ## Measure what our scheduler adds to a step
	@VLLM_LOGGING_LEVEL=ERROR $(BIN)/python ops/bench/scheduler.py

bench-gate: install ## Measure what the gate does on real vLLM when programs do not fit together (takes long)
	@$(BIN)/python ops/bench/gate.py

calibrate: install ## Measure the tiny model's step times here, for the simulator
	@$(BIN)/python ops/bench/calibrate.py

figures: install ## Draw the paper's figures from the simulator (takes more than an hour)
	@$(BIN)/autellix sim all
	@$(BIN)/autellix sim page

pre-commit: dev ## Run the checks before every commit
	@$(BIN)/pre-commit install

pins: dev ## Pin the newest versions that fit together
	@$(BIN)/python ops/pin.py

clean: ## Remove what was built, installed and cached here
	rm -rf .venv .venv-frameworks dist build .run .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find ops/packaging -name '*.egg-info' -prune -exec rm -rf {} +
