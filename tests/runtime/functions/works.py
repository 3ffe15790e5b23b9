"""Uses the processor and moves no byte."""

import time


def run(arguments, report):
    end = time.monotonic() + arguments["seconds"]
    while time.monotonic() < end:
        pass
    return {}
