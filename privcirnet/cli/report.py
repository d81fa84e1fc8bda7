"""Report on a finished chain of runs: tables in the terminal, one HTML page. `privcirnet report outputs/demo`."""

import argparse
import sys
from pathlib import Path

from privcirnet.artifact.records import write_text
from privcirnet.cli.console import console, readable_errors
from privcirnet.config.checks import check
from privcirnet.report import build_page, load_runs, print_tables


def main() -> None:
    """Read the runs, write the page, print the tables."""
    parser = argparse.ArgumentParser(Path(sys.argv[0]).name, description="Report on a finished chain of runs.")
    parser.add_argument("root", type=Path, help="the directory that holds train, search, finetune, qat, export, infer")
    root = Path(str(parser.parse_args().root).removeprefix("root="))  # as it is written for the other scripts
    with readable_errors():
        remedy = "check the path: it holds train, search, finetune, qat, export and infer, as outputs/demo"
        check(root.is_dir(), "the report is of a folder of runs", f"{root}, no such folder", remedy)
        report(root)


def report(root: Path) -> None:
    """Write the page of a chain and print the tables."""
    runs = load_runs(root)
    write_text(runs.page_path, build_page(runs))
    print_tables(runs, console)
