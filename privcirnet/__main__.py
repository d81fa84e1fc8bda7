"""The command ``privcirnet``, which an installation brings, and ``python -m privcirnet``: subcommands by name."""

import argparse
import difflib
import importlib
import os
import sys

from privcirnet import __version__
from privcirnet.cli import SUBCOMMANDS
from privcirnet.errors import RuleError

_EPILOG = "Each has a --help of its own. Settings are key=value; they are those of the scripts of the same names."


def main() -> None:
    """Run the subcommand that comes first, with all that follows as its arguments."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could come next
        from privcirnet.cli.completion import complete

        complete(parser())
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "--version"):
        parser().parse_args([name])
    from privcirnet.cli.console import readable_errors

    with readable_errors():
        check(name)
    sys.argv = [f"privcirnet {name}", *arguments]
    importlib.import_module(f"privcirnet.cli.{name}").main()


def parser() -> argparse.ArgumentParser:
    """Return the parser of --help and of completion; it leaves the arguments of subcommands to them."""
    root = argparse.ArgumentParser("privcirnet", description="Block-circulant networks on encrypted data.")
    root.epilog = _EPILOG
    root.add_argument("--version", action="version", version=f"privcirnet {__version__}")
    subcommands = root.add_subparsers(title="subcommands", metavar="<subcommand>", required=True)
    for name, does in SUBCOMMANDS.items():
        subcommands.add_parser(name, help=does, add_help=False).add_argument("arguments", nargs="*")
    return root


def check(name: str) -> None:
    """Check the name of a subcommand."""
    if name not in SUBCOMMANDS:
        close = difflib.get_close_matches(name, SUBCOMMANDS, n=1)
        remedy = f"did you mean {close[0]}?" if close else "privcirnet --help lists them"
        raise RuleError("the subcommand must be a known one", got=repr(name), remedy=remedy)


if __name__ == "__main__":
    main()
