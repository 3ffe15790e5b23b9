"""YAML → datasets → leaves → sources: loading, interpolation, path patterns, discovery, rewriting.

Nothing here touches a disk: nested files and folders come through the ``Reader`` that the caller hands in.
"""
