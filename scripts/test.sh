#!/bin/sh
# Installs what the tests need into .venv and runs them. Arguments go to pytest: scripts/test.sh -k sample
set -eu

cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

echo "Installing requirements/dev.txt into .venv"
install_locked requirements/dev.txt
# More processes than processors: most tests wait, for what a file server may tell of a file two seconds old.
exec "$python" -m pytest -n 4 "$@"
