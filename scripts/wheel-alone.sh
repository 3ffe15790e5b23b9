#!/bin/sh
# Is the wheel enough? Installs it into an empty environment outside the checkout and, with the network off,
# makes the sample and builds it there.
#
#   scripts/wheel-alone.sh dist/blendex-<version>-py3-none-any.whl
set -eu

wheel=$(readlink -f "$1")
cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh
locked=$(readlink -f requirements/base.txt)
python=$(readlink -f "$(dirname "$python")")/python

place=$(mktemp -d)
clean() {
    status=$?
    chmod -R u+w "$place" # mirrors are read-only
    rm -rf "$place"
    exit "$status"
}
trap clean EXIT
"$python" -m venv "$place/venv"
python=$place/venv/bin/python
pip_install --require-hashes --requirement "$locked"
pip_install --no-index --no-deps "$wheel"

# A namespace without any interface; where none can be made, say so and go on with the rest.
offline="unshare --net"
if ! $offline true 2>/dev/null; then
    offline="unshare --user --map-root-user --net"
    if ! $offline true 2>/dev/null; then
        echo "The network cannot be switched off here, so it stays on."
        offline=
    fi
fi

cd "$place"
unset PYTHONPATH
export BLENDEX_ROOT="$place/root"
# shellcheck disable=SC2086 # several words, or none
{
    $offline venv/bin/blendex sample corpus
    said=$($offline venv/bin/blendex build corpus/blend.yaml --data-blend-dir "$place/corpus")
    mirror=$(printf '%s\n' "$said" | tail -n 1)
    $offline venv/bin/blendex verify "$mirror"
}
case $mirror in
"$place"/*) ;;
*)
    echo "Expected a mirror under $place, got: $mirror" >&2
    exit 1
    ;;
esac
if [ ! -f "$mirror/READY" ]; then
    echo "No READY in $mirror" >&2
    exit 1
fi
echo "The wheel alone built $mirror"
