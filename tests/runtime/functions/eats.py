"""Takes more and more memory, or all of it at once."""

import numpy as np


def run(arguments, report):
    report({"in_hand": "the big one"})
    if arguments["how"] == "at once":
        np.ones(1 << 30, dtype=np.uint8)
    kept = []
    while True:
        kept.append(np.ones(1 << 20) if arguments["how"] == "numpy" else [bytes(1000) for _ in range(10_000)])
