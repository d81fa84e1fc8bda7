"""Classify held-out images encrypted and check every step of it. `python infer.py --help`."""

from privcirnet.cli.infer import main

if __name__ == "__main__":
    main()
