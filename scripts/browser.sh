#!/bin/sh
# Chromium for the tests of the dashboard, from Debian or Ubuntu, when there is none. They skip without it.
set -eu

for browser in "${BLENDEX_TEST_CHROMIUM:-}" chromium chromium-browser; do
    if [ -n "$browser" ] && command -v "$browser" >/dev/null; then
        exit 0
    fi
done
if ! command -v apt-get >/dev/null; then
    echo "There is no Chromium, and no apt-get to install it: set BLENDEX_TEST_CHROMIUM to one." >&2
    exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
fi
echo "Installing Chromium"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -qq --yes --no-install-recommends chromium >/dev/null
