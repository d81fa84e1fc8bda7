"""Report on a finished chain of runs: tables in the terminal, one HTML page. `python report.py outputs/demo`."""

from privcirnet.cli.report import main

if __name__ == "__main__":
    main()
