#!/bin/sh
# Is the archive enough? Unpacks it into an empty folder and, with the network off, does what docs/airgap.md says: checks the
# sums, installs what the image installs, and runs the first command of the README.
#
#   scripts/airgap-proof.sh dist/blendex-<version>-airgap.tar.gz
set -eu

archive=$(readlink -f "$1")
offline=$(dirname "$(readlink -f "$0")")/offline.sh
PYTHON=${PYTHON:-python3.11}
export PYTHON

place=$(mktemp -d)
clean() {
    status=$?
    chmod -R u+w "$place" # mirrors are read-only
    rm -rf "$place"
    exit "$status"
}
trap clean EXIT
tar -xzf "$archive" -C "$place"
cd "$place"/blendex-*
first=$(sed -n '/^```sh$/{n;p;q}' README.md)

# Nothing of this shell's Python, pip or Blendex may help.
for name in $(env | sed -n 's/^\(\(PYTHON\|PIP_\|BLENDEX_\|UV_\|VIRTUAL_ENV\)[A-Z_]*\)=.*/\1/p'); do
    [ "$name" = PYTHON ] || unset "$name"
done
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_FIND_LINKS="$PWD/wheelhouse" HOME="$place/home"
mkdir "$HOME"

echo "1. Sums"
sha256sum --check --quiet SHA256SUMS

echo "2. What the image installs"
"$offline" "$PYTHON" -m venv "$place/image"
"$offline" "$place/image/bin/python" -m pip install -q --no-cache-dir --disable-pip-version-check --find-links wheelhouse \
    --require-hashes --requirement requirements/cluster.txt
"$offline" "$place/image/bin/python" -m pip install -q --disable-pip-version-check \
    --no-index --no-deps --no-build-isolation .
"$offline" "$place/image/bin/blendex" doctor --root "$place/root" >/dev/null
rm -rf "$place/image"

echo "3. $first"
# shellcheck disable=SC2086 # a command line
"$offline" sh -c "$first" >"$place/said"
mirror=$(sed -n 's/^The mirror: //p' "$place/said")
if [ ! -f "$mirror/READY" ]; then
    cat "$place/said" >&2
    echo "No READY in '$mirror'" >&2
    exit 1
fi
echo "Without a network: $mirror"
