"""Keeps what it once took."""

import os
import time

KEPT = []


def run(arguments, report):
    report({"in_hand": "one", "sort": "small"})
    time.sleep(0.2)
    report({"in_hand": "two", "sort": "large"})
    KEPT.append(b"x" * arguments["bytes"])
    time.sleep(0.2)
    return {"pid": os.getpid()}
