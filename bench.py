"""Layers under encryption: counts, bytes, seconds, and the exact results checked. `python bench.py --help`."""

from privcirnet.commands.bench import main

if __name__ == "__main__":
    main()
