"""Server: encrypted images become encrypted results."""

from files import given, read_rows, timed, write_rows

from privcirnet.artifact import read_leveled
from privcirnet.he.leveled.inference import LeveledInferenceServer


def main() -> None:
    """Run the stage."""
    files = given()
    program = read_leveled(files.program)
    with timed("weights"):
        server = LeveledInferenceServer(program.plan, program.parameters)
    with timed("keys"):
        keys = server.load_keys(read_rows(files.keys)[0])
    for folder in sorted(files.upload.iterdir()):
        request = read_rows(folder)
        with timed("inference"):
            answer = server.answer(request, keys)
        write_rows(files.download / folder.name, answer)


if __name__ == "__main__":
    main()
