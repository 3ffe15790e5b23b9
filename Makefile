# `make test` first: it makes .venv, which the other targets use.
PY := .venv/bin/python
SHELL_FILES := .ci/run scripts/*.sh tests/oracle/run.sh

.PHONY: help check test pictures oracle bench scale chaos fuzz lock lock-check wheel wheel-alone cluster orchestration

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

check: lock-check ## linters, types, layers, locked versions, shell scripts
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/mypy scripts/lock_check.py scripts/reference.py
	.venv/bin/lint-imports
	$(PY) scripts/reference.py --check
	.venv/bin/shellcheck $(SHELL_FILES)

test: ## install what the tests need and run them
	scripts/test.sh

cluster: ## every test of the cluster form, also the long ones; needs PostgreSQL and Redis
	$(PY) -m pytest tests/cluster -m 'long or not long'

orchestration: ## what the service costs on top of the work, and a plan of 400,000 rows
	$(PY) benchmarks/plan_rows.py
	$(PY) benchmarks/orchestration.py

pictures: ## write the pictures of the documents again
	BLENDEX_PICTURES=1 $(PY) -m pytest -q tests/dashboard/test_look.py -k write_the_pictures

oracle: ## let upstream's own readers read through our mirrors (own environment)
	scripts/oracle-env.sh
	tests/oracle/run.sh

bench: ## speed beside upstream's builders
	scripts/oracle-env.sh
	$(PY) benchmarks/run.py --oracle .venv-oracle/bin/python
	$(PY) benchmarks/packs.py --oracle .venv-oracle/bin/python

scale: ## growth of the catalog and memory with 100 large submissions
	$(PY) benchmarks/scale.py

fuzz: ## twenty thousand damaged archives
	$(PY) -m tests.fuzz --count 20000

chaos: ## ten thousand random crash points
	$(PY) -m tests.chaos --count 10000

lock: ## write requirements/*.txt again
	scripts/lock.sh

lock-check: ## do requirements/*.txt answer pyproject.toml?
	@scripts/lock.sh --check

wheel: ## dist/*.whl
	rm -f dist/blendex-*.whl
	$(PY) -m pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

wheel-alone: wheel ## the wheel, alone in an empty environment, builds the sample
	scripts/wheel-alone.sh dist/blendex-*.whl
