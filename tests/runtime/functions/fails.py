"""Fails, with a code or by accident."""

from blendex.errors import BlendexError, Code


def run(arguments, report):
    if "code" in arguments:
        raise BlendexError(Code(arguments["code"]), "gone.", next_step="look")
    return 1 / 0
