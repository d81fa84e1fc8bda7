"""The command ``privcirnet``, a module for each subcommand, whose ``main`` its script runs, too."""

import sys
from types import TracebackType

SUBCOMMANDS = {
    "demo": "the whole chain on small digits, with a report page",
    "train": "train a network: dense, circulant, polynomial or 8-bit",
    "search": "choose a block size for each layer under a latency budget",
    "export": "make a program for encrypted inference of a network",
    "infer": "classify images encrypted, and check every step",
    "serve": "serve programs to clients over gRPC and TLS",
    "report": "tables and an HTML page of a finished chain",
    "ladder": "run a whole chain of an experiment, or what is missing of it",
    "doctor": "say what is installed, what works and what is missing",
    "completion": "print what makes a shell complete subcommands, settings",
}
"""Descriptions of subcommands by name, for --help."""


def _in_short(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Show an error as usual, but Ctrl-C during the imports of a command in one line."""
    if issubclass(kind, KeyboardInterrupt):
        error, at = error.with_traceback(None), None
    sys.__excepthook__(kind, error, at)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _in_short
