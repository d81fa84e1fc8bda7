"""``python -m papers.reproduce``, which is reproduce.py."""

from papers.reproduce.command import main

main()
