#!/bin/sh
# One archive for a site without registries: the source (which is the context of the image, too), every wheel that is locked
# with its hash, chart, documents, a sample, a bill of materials. What is committed goes in, nothing else.
#
#   scripts/airgap.sh [ARCHIVE]     default: dist/blendex-<version>-airgap.tar.gz
#
# The wheels are those for the Python and the platform that this runs on. scripts/airgap-proof.sh proves the archive.
set -eu

cd "$(dirname "$0")/.."
# shellcheck source=scripts/python.sh
. scripts/python.sh
version=$("$python" -c 'from blendex.version import __version__; print(__version__)')
archive=${1:-dist/blendex-$version-airgap.tar.gz}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
top=$place/blendex-$version
mkdir "$top"

git archive HEAD README.md CHANGELOG.md LICENSE pyproject.toml Makefile Dockerfile .dockerignore docker-compose.yml \
    requirements/base.txt requirements/serve.txt requirements/cluster.txt \
    blendex service workers migrations scripts deploy helm docs examples | tar -x -C "$top"

echo "Wheels"
"$python" -m pip download -q --disable-pip-version-check --only-binary :all: \
    --require-hashes --requirement requirements/cluster.txt --dest "$top/wheelhouse"
"$python" scripts/sbom.py requirements/cluster.txt "$top/wheelhouse" >"$top/sbom.cdx.json"
"$python" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir "$top/wheelhouse" "$top"

echo "A sample"
.venv/bin/blendex sample "$top/blendex-sample" >/dev/null

(cd "$top" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >"$place/sums"
mv "$place/sums" "$top/SHA256SUMS"
mkdir -p "$(dirname "$archive")"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct)" -C "$place" \
    -cf - "blendex-$version" | gzip -n >"$archive"
echo "$archive: $(du -h "$archive" | cut -f 1), $(find "$top/wheelhouse" -name '*.whl' | wc -l) wheels"
