"""Takes much in small pieces, and keeps a few of them."""

import os

KEPT = []


def run(arguments, report):
    pieces = [bytearray(4096) for _ in range(arguments["bytes"] // 4096)]
    KEPT.extend(pieces[::64])
    return {"pid": os.getpid()}
