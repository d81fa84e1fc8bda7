"""Layers under encryption: counts, bytes, seconds, and the exact results checked. `python bench.py --help`."""

from benchmarks.bench.command import main

if __name__ == "__main__":
    main()
