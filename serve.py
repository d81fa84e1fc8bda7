"""Serve a program to clients on TCP. `python serve.py --help`."""

from privcirnet.cli.serve import main

if __name__ == "__main__":
    main()
