"""The command line at hand once more: without some of its options, and with others."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import click

from refsim.cli.kit.document import Document
from refsim.cli.kit.verb import PROGRAM


def again(without: Mapping[str, bool], *more: str) -> str:
    """The command line as a whole command. ``without``: names of options to leave out, and whether they take a value.

    ``more`` words stand at its end.
    """
    document = click.get_current_context().find_object(Document)
    left, words = list(document.given if document is not None else ()), [PROGRAM]
    while left:
        word = left.pop(0)
        if word.partition("=")[0] not in without:
            words.append(word)
        elif without[word.partition("=")[0]] and "=" not in word and left:
            left.pop(0)
    return shlex.join([*words, *more])


def drawing(seed: int) -> str:
    """The command line with inputs that are drawn from this seed."""
    return again({"--input": True, "-i": True, "--random": True}, "--random", str(seed))
