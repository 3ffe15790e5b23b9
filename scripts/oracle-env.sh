#!/bin/sh
# Makes .venv-oracle: lhotse and nemo-toolkit as they are published, to compare with. Run it as often as you
# like: what is there is kept. Not part of the tests: it takes some GB where pip finds no CPU build of torch.
set -eu

cd "$(dirname "$0")/.."
python=.venv-oracle/bin/python

right() {
    "$python" - 2>/dev/null <<'END'
import sys
from importlib.metadata import version

want = {"torch": "2.13.0", "lhotse": "2.0.0a7", "torchdata": "0.11.0", "nemo-toolkit": "3.0.0"}
have = {name: version(name).partition("+")[0] for name in want}
for name in ("blake3", "numpy", "omegaconf", "orjson", "soundfile", "urllib3"):
    version(name)
sys.exit(have != want)
END
}

if right; then
    exit 0
fi
if [ ! -x "$python" ]; then
    "${PYTHON:-python3.11}" -m venv .venv-oracle
fi
install() {
    "$python" -m pip install -qq --disable-pip-version-check "$@"
}
echo "Installing torch, lhotse and nemo-toolkit into .venv-oracle"
install torch==2.13.0
# urllib3: lhotse imports it without asking for it. blake3 and orjson are ours: the benchmarks time both sides in one
# process of this environment.
install --pre lhotse==2.0.0a7 torchdata==0.11.0 omegaconf numpy soundfile urllib3 blake3 orjson
# Without what it asks for: one of its files is read, and that needs nothing of it.
install --no-deps nemo-toolkit==3.0.0
if ! right; then
    echo ".venv-oracle does not hold the versions it should; remove it and run this again." >&2
    exit 1
fi
