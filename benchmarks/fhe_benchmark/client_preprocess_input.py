"""Client: pixels in [0, 1] become the integers that the program takes."""

import numpy as np
from files import given, to_integers


def main() -> None:
    """Run the stage."""
    files = given()
    images = to_integers(np.loadtxt(files.pixels, ndmin=2), files.known())
    files.integers.parent.mkdir(parents=True, exist_ok=True)
    np.save(files.integers, images)


if __name__ == "__main__":
    main()
