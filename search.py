"""Choose a block size for every layer under a latency budget. `python search.py --help`."""

from privcirnet.cli.search import main

if __name__ == "__main__":
    main()
