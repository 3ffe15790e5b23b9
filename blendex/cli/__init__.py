"""The command line: the only place that knows everything. Commands import what they need when they run."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``blendex``."""
    from blendex.cli.app import run

    run()
