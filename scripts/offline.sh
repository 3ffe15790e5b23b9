#!/bin/sh
# Runs a command without a network: in a namespace that has loopback and nothing else.
#
#   scripts/offline.sh COMMAND…
#
# Exit status 69 when such a namespace cannot be made here.
set -eu

namespace="unshare --net"
if ! $namespace true 2>/dev/null; then
    namespace="unshare --user --map-root-user --net"
    if ! $namespace true 2>/dev/null; then
        echo "The network cannot be switched off here: unshare --net is not allowed." >&2
        exit 69
    fi
fi
# shellcheck disable=SC2086 # several words
exec $namespace "${PYTHON:-python3}" -c '
import fcntl, os, socket, struct, sys

name = b"lo".ljust(16, b"\0")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    flags = struct.unpack("16xh", fcntl.ioctl(s, 0x8913, name + bytes(24))[:18])[0]  # SIOCGIFFLAGS
    fcntl.ioctl(s, 0x8914, name + struct.pack("h", flags | 1) + bytes(22))  # SIOCSIFFLAGS, IFF_UP
assert [item[1] for item in socket.if_nameindex()] == ["lo"], socket.if_nameindex()
os.execvp(sys.argv[1], sys.argv[1:])
' "$@"
