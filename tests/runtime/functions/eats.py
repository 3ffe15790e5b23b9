"""Takes more and more memory."""

import numpy as np


def run(arguments, report):
    report({"in_hand": "the big one"})
    kept = []
    while True:
        kept.append(np.ones(1 << 20) if arguments["how"] == "numpy" else [bytes(1000) for _ in range(10_000)])
