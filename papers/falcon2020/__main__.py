"""``python -m papers.falcon2020``: a network of squares in leveled BFV."""

from papers.falcon2020.command import main

main()
