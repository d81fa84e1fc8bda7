"""Run a whole chain: dense, searched, circulant, quantized, encrypted. `python ladder.py --help`."""

from privcirnet.cli.ladder import main

if __name__ == "__main__":
    main()
