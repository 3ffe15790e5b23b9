#!/bin/sh
# Installs what the tests need into .venv and runs them. Arguments go to pytest: scripts/test.sh -k sample
set -eu

cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh

echo "Installing requirements/dev.txt into .venv"
install_locked requirements/dev.txt
exec "$python" -m pytest -n 2 --dist loadgroup "$@"
