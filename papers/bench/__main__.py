"""``python -m papers.bench``."""

from papers.bench.command import main

main()
