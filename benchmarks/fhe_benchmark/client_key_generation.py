"""Client: a secret key, and evaluation keys for exactly the program's rotations and squares."""

from files import given, timed, write_rows, write_secret

from papers.falcon2020.protocol.inference import LeveledInferenceClient


def main() -> None:
    """Run the stage."""
    files = given()
    known = files.known()
    client = LeveledInferenceClient(known.plan, known.parameters)
    with timed("keys"):
        keys = client.keys()
    write_rows(files.keys, [keys])
    write_secret(files.secret, client.secret())


if __name__ == "__main__":
    main()
