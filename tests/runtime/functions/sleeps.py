"""Takes its time."""

import time


def run(arguments, report):
    report({"in_hand": "asleep"})
    time.sleep(arguments["seconds_asleep"])
    return {}
