#!/bin/sh
# Writes requirements/*.txt from pyproject.toml: exact versions with hashes, for every platform.
#
#   scripts/lock.sh             keep the versions that are locked, add what is missing
#   scripts/lock.sh --upgrade   take the newest of everything
#   scripts/lock.sh --check     change nothing; fail when a file no longer answers pyproject.toml
#
# dev.txt is resolved first, being the largest; the others may only pick versions that stand in it, so one
# environment can hold any of them. --check runs offline: what a locked file says is compared with
# what pyproject.toml asks for, no index is needed for that.
set -eu

cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}

if [ "${1:-}" = --check ]; then
    exec "$python" scripts/lock_check.py
fi

compile() {
    out=$1
    shift
    "$python" -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
        --output-file "$out" "$@"
}

compile requirements/dev.txt pyproject.toml --extra all --group dev "$@"
compile requirements/serve.txt pyproject.toml --extra serve --group build \
    --constraints requirements/dev.txt "$@"
compile requirements/cluster.txt pyproject.toml --extra all --group build \
    --constraints requirements/dev.txt "$@"
compile requirements/base.txt pyproject.toml --constraints requirements/dev.txt "$@"
"$python" scripts/lock_check.py
