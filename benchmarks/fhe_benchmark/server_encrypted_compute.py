"""Server: encrypted images become encrypted results.

Before it loads the keys it runs an image of its own under keys of its own, as serve.py does when it starts, so that the
first client does not wait for compiled code.
"""

import numpy as np
from files import given, read_rows, timed, write_rows

from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from papers.falcon2020.protocol.leveled_program import LeveledProgram


def rehearse(program: LeveledProgram, server: LeveledInferenceServer) -> None:
    """Run the darkest image.

    Args:
        program: with weights.
        server: of it.
    """
    plan = program.plan.public
    client, image = LeveledInferenceClient(plan, program.parameters), np.full(plan.image, plan.low)
    server.answer(client.request(image if plan.lanes is None else image[None]), server.load_keys(client.keys()))
    client.close()


def main() -> None:
    """Run the stage."""
    files = given()
    program = files.read_program()
    with timed("weights"):
        server = LeveledInferenceServer(program.plan, program.parameters)
    with timed("rehearsal"):
        rehearse(program, server)
    with timed("keys"):
        keys = server.load_keys(read_rows(files.keys)[0])
    for folder in sorted(files.upload.iterdir()):
        request = read_rows(folder)
        with timed("inference"):
            answer = server.answer(request, keys)
        write_rows(files.download / folder.name, answer)


if __name__ == "__main__":
    main()
