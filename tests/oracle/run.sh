#!/bin/sh
# Builds the speech blend and the sample with Blendex and lets upstream's own readers read every record
# through the mirrors; then touches two sources, builds again (the same mirror, by content) and reads again.
set -eu

cd "$(dirname "$0")/../.."
blendex=$PWD/.venv/bin/blendex
oracle=$PWD/.venv-oracle/bin/python
reader=$PWD/tests/oracle/read_mirror.py

place=$(mktemp -d)
clean() {
    status=$?
    chmod -R u+w "$place" # mirrors are read-only
    rm -rf "$place"
    exit "$status"
}
trap clean EXIT
export BLENDEX_ROOT="$place/root"

# A copy: sources are touched below, and nobody's checkout should be.
cp -R tests/data/speech "$place/speech"
"$blendex" sample "$place/sample"
cd "$place"

build() {
    said=$("$blendex" build "$1/blend.yaml" --data-blend-dir "$place/$1")
    printf '%s\n' "$said" | tail -n 1
}

for corpus in speech sample; do
    echo "$corpus: first build"
    first=$(build "$corpus")
    "$oracle" "$reader" "$first" "$corpus/blend.yaml" "$corpus"

    echo "$corpus: two sources touched"
    touch "$corpus/manifest.jsonl" "$corpus/nemo_tarred/audio_2.tar"
    second=$(build "$corpus")
    if [ "$first" != "$second" ]; then
        echo "Another mirror after a touch: $first, then $second" >&2
        exit 1
    fi
    "$oracle" "$reader" "$second" "$corpus/blend.yaml" "$corpus"
done

# The sidecars of the speech blend are those that upstream wrote, byte for byte.
mirror=$(build speech)
names=$(cd speech/expected && find . -name '*.idx' ! -name 'chat_0.*')
test -n "$names"
for name in $names; do
    cmp "speech/expected/$name" "$mirror/idx$place/speech/$name"
done
# Packs: upstream opens them by the keys of the ready blend, and finds the records where the sidecars have them.
for corpus in speech sample; do
    echo "$corpus: packs"
    "$blendex" build "$corpus/blend.yaml" --data-blend-dir "$place/$corpus" --packs all --sidecars all 2>said
    ready=$(sed -n 's/^ready blend: //p' said)
    "$oracle" "${reader%/*}/read_packs.py" "$ready" "$(grep -c '^pack of' said)"
done

# Packs of random corpora, from sidecars and from bundles, and the packs that the tests compare with.
mkdir random
"${blendex%/*}/python" "${reader%/*}/random_packs.py" write random
"$oracle" "${reader%/*}/random_packs.py" read random "${reader%/*/*}/data/golden"

# Every pack that the tests of packs make, of every kind of collection.
(cd "${reader%/*/*/*}" && env -u BLENDEX_ROOT "${blendex%/*}/python" -m pytest -q -p no:cacheprovider -n 4 \
    --basetemp "$place/tests" -k "not postgres" tests/builds/test_packs.py tests/builds/test_pack_kinds.py)
"$oracle" "${reader%/*}/read_tests.py" "$place/tests" 40

echo "Every record was read through the mirrors, before and after the touch."
