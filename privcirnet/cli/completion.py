"""Completion of subcommands, settings and options of groups, by argcomplete. `privcirnet completion --help`."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import argcomplete
from argcomplete.completers import BaseCompleter, DirectoriesCompleter
from argcomplete.shell_integration import shellcode

from privcirnet import config
from privcirnet.cli.settings import offers

SHELLS = ("bash", "zsh", "fish")
_EPILOG = (
    'bash: eval "$(privcirnet completion bash)" in ~/.bashrc; zsh alike; fish: privcirnet completion fish | source'
)


def main() -> None:
    """Write the script that the shell evaluates."""
    parser = argparse.ArgumentParser(Path(sys.argv[0]).name, description=__doc__, epilog=_EPILOG)
    parser.add_argument("shell", choices=SHELLS)
    sys.stdout.write(shellcode(["privcirnet"], shell=parser.parse_args().shell))


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell's request for completions, and end the process."""
    argcomplete.autocomplete(parser, always_complete_options=False, default_completer=Candidates())


class Candidates(BaseCompleter):
    """The words that a subcommand takes."""

    def __call__(self, *, prefix: str, parser: argparse.ArgumentParser, **_: object) -> Iterable[str]:
        """Return the words that may follow."""
        name = parser.prog.split()[-1]
        if name == "completion":
            return SHELLS
        if name == "report":
            return DirectoriesCompleter()(prefix)
        schema = config.SCHEMAS.get(name)
        return offers(name, schema) if schema else []
