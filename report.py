"""Report on a finished chain of runs: tables in the terminal, one HTML page. `python report.py outputs/demo`."""

import argparse
from pathlib import Path

from privcirnet.artifact import write_text
from privcirnet.console import console, readable_errors
from privcirnet.report import build_page, load_runs, print_tables


def main(arguments: list[str] | None = None) -> None:
    """Read the runs, write the page, print the tables."""
    parser = argparse.ArgumentParser(description="Report on a finished chain of runs.")
    parser.add_argument("root", type=Path, help="the directory that holds train, search, finetune, qat, export, infer")
    root = parser.parse_args(arguments).root
    with readable_errors():
        runs = load_runs(root)
        write_text(runs.page_path, build_page(runs))
        print_tables(runs, console)


if __name__ == "__main__":
    main()
