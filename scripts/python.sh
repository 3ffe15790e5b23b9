# shellcheck shell=sh
# Read by the other scripts: sets $python to .venv's interpreter, and makes .venv when it is not there.

python=.venv/bin/python
if [ ! -x "$python" ]; then
    base=
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            base=$candidate
            break
        fi
    done
    if [ -z "$base" ]; then
        echo "Blendex needs Python 3.11 or newer. Install it, or set PYTHON to where it is." >&2
        exit 1
    fi
    echo "Making .venv with $("$base" --version)"
    "$base" -m venv .venv
fi

# Everything comes from the locked file, what builds the project too: without isolation nothing else is fetched.
pip_install() {
    "$python" -m pip install -qq --disable-pip-version-check "$@"
}
install_locked() {
    pip_install --require-hashes --requirement "$1"
    pip_install --no-deps --no-build-isolation --editable .
}
