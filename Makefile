# `make test` first: it makes .venv, which the other targets use.
PY := .venv/bin/python
SHELL_FILES := .ci/run scripts/*.sh tests/oracle/run.sh

.PHONY: help check test slow pictures oracle bench sdk stores scale chaos storm fuzz api-fuzz airgap lock lock-check wheel wheel-alone cluster orchestration

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

check: lock-check ## linters, types, layers, locked versions, shell scripts
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/mypy scripts/lock_check.py scripts/reference.py scripts/chart_reference.py scripts/sbom.py scripts/picture.py
	.venv/bin/lint-imports
	$(PY) scripts/reference.py --check
	$(PY) scripts/chart_reference.py --check
	$(PY) scripts/picture.py --check
	.venv/bin/shellcheck $(SHELL_FILES)

test: ## install what the tests need and run them
	scripts/test.sh

slow: ## the tests that start clusters, stop builds at many points, look at every page
	$(PY) -m pytest -n 3 -m 'slow and not long'

cluster: ## every test of the cluster form, also the long ones; needs PostgreSQL and Redis
	$(PY) -m pytest tests/cluster -m 'slow or long'

orchestration: ## what the service costs on top of the work, and a plan of 400,000 rows
	$(PY) benchmarks/plan_rows.py
	$(PY) benchmarks/orchestration.py

pictures: ## write the pictures of the documents again
	BLENDEX_PICTURES=1 $(PY) -m pytest -q tests/dashboard/test_look.py -m slow -k write_the_pictures

oracle: ## let upstream's own readers read through our mirrors (own environment)
	scripts/oracle-env.sh
	tests/oracle/run.sh

bench: ## speed beside upstream's builders
	scripts/oracle-env.sh
	$(PY) benchmarks/run.py --oracle .venv-oracle/bin/python
	$(PY) benchmarks/packs.py --oracle .venv-oracle/bin/python

sdk: ## tests of AIStore under the oldest SDK that is supported (own folder)
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --upgrade --target .sdk-oldest \
		aistore==1.26.0 xxhash==3.5.0 overrides humanize cloudpickle
	PYTHONPATH=.sdk-oldest $(PY) -m pytest tests/stores -k 'not s3' -q

stores: ## batches, and ways through tars, at emulated distances
	PYTHONPATH=. $(PY) benchmarks/stores.py

scale: ## growth of the catalog and memory with 100 large submissions
	$(PY) benchmarks/scale.py

fuzz: ## twenty thousand damaged archives
	$(PY) -m tests.fuzz --count 20000

api-fuzz: ## five thousand generated requests to the whole API with all checks, and what attackers would send
	$(PY) -W ignore -m tests.fuzz.api --examples 5000

storm: ## a short storm on a cluster of real processes, and proof that its checks see mistakes
	$(PY) -m pytest tests/storm -m 'long or not long' -k 'short_storm or ignore_each_other'

chaos: ## ten thousand random crash points; storms with 200 kills, PostgreSQL and Redis
	$(PY) -m tests.chaos --count 10000
	$(PY) -m tests.storm --kills 200 --each 20

lock: ## write requirements/*.txt again
	scripts/lock.sh

lock-check: ## do requirements/*.txt answer pyproject.toml?
	@scripts/lock.sh --check

airgap: ## one archive for a site without registries, and the proof that it is enough
	scripts/airgap.sh dist/blendex-airgap.tar.gz
	scripts/airgap-proof.sh dist/blendex-airgap.tar.gz

wheel: ## dist/*.whl
	rm -f dist/blendex-*.whl
	$(PY) -m pip wheel -qq --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

wheel-alone: wheel ## the wheel, alone in an empty environment, builds the sample
	scripts/wheel-alone.sh dist/blendex-*.whl
