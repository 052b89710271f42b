"""The command `refsim`: one module per verb here; modules with a leading underscore are what they share."""

from refsim.cli.kit.program import main

__all__ = ["main"]
