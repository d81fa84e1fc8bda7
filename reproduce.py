"""The printed tables and figures of five papers, beside ours. `python reproduce.py --help`."""

from papers.reproduce.command import main

if __name__ == "__main__":
    main()
