# Every target sets up what it needs. The first set-up takes a minute or two, the next ones none.
PYTHON ?= python3.11
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
PEERS  := .venv-peers
CLEANRL := .venv-peers-cleanrl

.PHONY: setup demo test check lint soak peers bench docs clean

setup: $(STAMP)

# torch comes first and pinned, so that nothing later fetches another build of it. For another
# build: make TORCH="torch==2.13.0 --index-url URL", with the URL that pytorch.org gives for it.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found; install Python 3.11, or run: make PYTHON=python3 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (torch first; one to three minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $(STAMP)

demo: setup
	$(BIN)/rlctl launch -f rl_orch/configs/ppo-CartPole-v1.yaml

# Linters work beside the tests, and have their say when both are through.
define beside_lint
@$(MAKE) --no-print-directory lint > $(VENV)/lint.log 2>&1 & lint=$$!; \
$(BIN)/python -m pytest $(1); tests=$$?; \
wait $$lint; linted=$$?; cat $(VENV)/lint.log; exit $$((tests || linted))
endef

# Hundreds of processes load the same modules: compiled once, whatever the machine prefers.
test check: export PYTHONDONTWRITEBYTECODE :=
test: setup
	$(call beside_lint,-n 3 --dist worksteal --durations=25 tests)

# The linters, and tests that need neither services nor trainings of their own.
check: setup
	$(call beside_lint,-n 2 --dist worksteal tests/unit)

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The long forms of what the tests do: certificates for every environment, fifty kills of a run,
# a hundred of the service. Peers make policies to import.
soak: setup $(PEERS)/.ready $(CLEANRL)/.ready
	$(BIN)/python -m pytest -n 2 -o addopts="" -o timeout=3600 -v tests/soak
	$(BIN)/python -m pytest -n 2 -o addopts="" -v -m soak tests

# For another choice of peers, workloads or runs: .venv/bin/python -m benchmarks.speed --help
bench: setup peers
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python benchmarks/launch_time.py
	$(BIN)/python benchmarks/evaluation_speed.py --peer-python $(PEERS)/bin/python
	$(BIN)/python benchmarks/checkpoint_cost.py
	$(BIN)/python benchmarks/supervision_cost.py
	$(BIN)/python benchmarks/metric_series.py
	$(BIN)/python benchmarks/show_cost.py
	$(BIN)/python benchmarks/api_latency.py
	$(BIN)/python benchmarks/stream_clients.py
	$(BIN)/python -m benchmarks.replay_memory
	$(BIN)/python -m benchmarks.learning --peer-python $(PEERS)/bin/python

# Peers live in environments of their own.
peers: $(PEERS)/.ready $(PEERS)/.ready-sbx $(CLEANRL)/.ready

$(PEERS)/.ready:
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo "Setting up $(PEERS) with Stable-Baselines3 ..."
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "stable-baselines3>=2.7" \
		"sb3-contrib>=2.7" "gymnasium[box2d,mujoco]>=1.4,<1.5"
	@touch $@

$(PEERS)/.ready-sbx: $(PEERS)/.ready
	@echo "Adding SBX to $(PEERS) ..."
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check "sbx-rl>=0.28" "jax>=0.10,<0.11"
	@touch $@

# CleanRL's scripts name Python below 3.11 and packages of 2022; they run on 3.11 with these.
$(CLEANRL)/.ready:
	@test -x $(CLEANRL)/bin/python || $(PYTHON) -m venv $(CLEANRL)
	@echo '*' > $(CLEANRL)/.gitignore
	@echo "Setting up $(CLEANRL) with CleanRL ..."
	@$(CLEANRL)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@$(CLEANRL)/bin/python -m pip install --quiet --disable-pip-version-check "gym==0.23.1" pygame-ce \
		"gymnasium[mujoco]==0.29.1" "mujoco<3" "numpy<2" "stable-baselines3==2.3.2"
	@$(CLEANRL)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--ignore-requires-python "cleanrl==1.2.0"
	@touch $@

docs: setup
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) $(PEERS) $(CLEANRL) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
