"""Returns what it was given."""

import os


def run(arguments, report):
    report({"seen": len(arguments)})
    return {"value": arguments.get("value"), "pid": os.getpid()}
