"""What a child does: one module per kind of work, each with a ``run(arguments, report)``.

Arguments and results are JSON, so the same functions serve a local child, a remote worker and a test.
"""
