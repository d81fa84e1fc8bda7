"""``python -m benchmarks.load``."""

from benchmarks.load.command import main

main()
