"""Client: images become slots and ciphertexts, as many images in a request as the program has room for."""

import numpy as np
from files import given, timed, write_rows


def main() -> None:
    """Run the stage."""
    files = given()
    client, known = files.client()
    images = np.load(files.integers)
    plan = known.plan
    with timed("encryption"):
        parts = [images[start : start + plan.batch] for start in range(0, len(images), plan.batch)]
        requests = [client.request(part[0] if plan.lanes is None else part) for part in parts]
    for number, request in enumerate(requests):
        write_rows(files.upload / f"{number:05}", request)


if __name__ == "__main__":
    main()
