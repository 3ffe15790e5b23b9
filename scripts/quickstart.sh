#!/bin/sh
# From a fresh clone to a mirror: installs into .venv, makes a sample corpus, starts the service on loopback,
# posts the sample's blend with curl, waits, and shows what came out. Needs Python 3.11 and curl.
set -eu

cd "$(dirname "$0")/.."
sample=$PWD/blendex-sample
data=$PWD/blendex-data

command -v curl >/dev/null || {
    echo "This needs curl." >&2
    exit 1
}
# shellcheck source=scripts/python.sh
. scripts/python.sh

echo "1. Installing requirements/serve.txt into .venv"
install_locked requirements/serve.txt
blendex=.venv/bin/blendex

echo "2. A sample corpus"
if [ -f "$sample/blend.yaml" ]; then
    echo "   $sample is there already"
else
    "$blendex" sample "$sample"
fi

echo "3. The service"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
log=$(mktemp)
BLENDEX_ROOT=$data "$blendex" serve --port "$port" --allow-root "$sample" >"$log" 2>&1 &
service=$!
# However this ends, the service ends with it; its log is only of interest when something went wrong.
stop() {
    status=$?
    trap - EXIT
    kill "$service" 2>/dev/null || true
    wait "$service" 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        echo "The service said:" >&2
        cat "$log" >&2
    fi
    rm -f "$log"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A proxy that is set for the world outside has no business with loopback.
ask() {
    curl --fail --silent --show-error --noproxy '*' --max-time 60 "$@"
}
tries=0
until ask --output /dev/null "$url/readyz" 2>/dev/null; do
    tries=$((tries + 1))
    if [ "$tries" -gt 150 ] || ! kill -0 "$service" 2>/dev/null; then
        echo "The service did not start." >&2
        exit 1
    fi
    sleep 0.2
done
echo "   listens at $url (the API is described at $url/docs)"

echo "4. Posting $sample/blend.yaml"
# The folder's name goes into a URL, so what is special there is escaped.
folder=$("$python" -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' "$sample")
answer=$(ask --data-binary "@$sample/blend.yaml" --header 'Content-Type: application/yaml' \
    "$url/v1/builds?var=data_blend_dir=$folder&name=sample")
id=$(printf '%s' "$answer" | "$python" -c 'import json, sys; print(json.load(sys.stdin)["id"])')
echo "   build $id"

echo "5. Waiting for its mirror"
# 503 means: not yet. curl tries it again, after as long as the answer asks for.
if ! mirror=$(ask --retry 20 --header 'Accept: text/plain' "$url/v1/builds/$id/path?wait=20"); then
    curl --silent --noproxy '*' --header 'Accept: text/plain' "$url/v1/builds/$id/path" >&2
    exit 1
fi

cat <<END

The mirror: $mirror

Look at it:
  find $mirror/idx -name '*.idx'
  $python -m json.tool $mirror/receipt.json
  $blendex verify $mirror

A training job sets
  indexed: true
  indexes_root: $mirror/idx
or takes the blend with both in it: $data/builds/$id/blend.yaml

The service is stopped now; the mirror stays. To start it again:
  BLENDEX_ROOT=$data $blendex serve --allow-root $sample
END
