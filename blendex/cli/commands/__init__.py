"""What can be typed: a module for each command, or for commands that belong together. They import what they need when
they run, so that ``blendex --help`` is quick.
"""
