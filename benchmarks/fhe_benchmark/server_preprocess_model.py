"""Server: read the model, and write what the client must know of it; no weight."""

from files import given

from privcirnet.artifact import read_leveled


def main() -> None:
    """Run the stage."""
    files = given()
    files.describe(read_leveled(files.program).description)


if __name__ == "__main__":
    main()
