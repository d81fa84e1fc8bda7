"""Server: read the model, and write what the client must know of it; no weight."""

from files import given


def main() -> None:
    """Run the stage."""
    files = given()
    files.describe(files.read_program().description)


if __name__ == "__main__":
    main()
