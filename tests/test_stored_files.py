"""Files of every format, kept: they must keep loading, and mean what they meant.

A format that changes gets a new version, and new files here; a release has a remedy for files of the one before.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from privcirnet.artifact.folder import MANIFEST, read_signature
from privcirnet.artifact.program import PLAINTEXTS, WEIGHTS, read_program, write_program
from privcirnet.artifact.records import Bits, read_checkpoint, read_plan, read_profile
from privcirnet.errors import RuleError
from privcirnet.he.program import manifest, signature
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.runs import interactive
from privcirnet.train.network import build

FIXTURES = Path(__file__).parent / "fixtures"
FOLDER, PROGRAM_FOLDER = FIXTURES / "version1", FIXTURES / "version4" / "programs"
PROGRAMS = json.loads((PROGRAM_FOLDER / "expected.json").read_text())
CHECKPOINTS = json.loads((FOLDER / "checkpoints.json").read_text())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_s_logits_are_what_they_were(name):
    """By the interpreter from its weights, and by both parties from its stored spectra."""
    program, spectra = read_program(PROGRAM_FOLDER / name)
    image = np.array(PROGRAMS[name]["image"], dtype=np.int64).reshape(program.nodes[0].shape)
    assert interpret(program, image)[program.output.name].reshape(-1).tolist() == PROGRAMS[name]["logits"]
    server = Server(program, "cleartext", spectra)
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    run(client, session, image)
    assert interactive.wrong_nodes(program, interactive.reconstruct(program, client.shares, session.shares)) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_written_as_it_was(name, tmp_path):
    """Byte for byte."""
    folder, again = PROGRAM_FOLDER / name, tmp_path / "program"
    write_program(again, read_program(folder)[0], {})
    stored, written = (json.loads((each / MANIFEST).read_text()) for each in (folder, again))
    assert list(stored) == list(written)
    assert stored == written
    for file in (WEIGHTS, PLAINTEXTS):
        assert (folder / file).read_bytes() == (again / file).read_bytes()


def test_a_signature_is_what_it_was():
    key, folder = signature.read_public(PROGRAM_FOLDER / "key.pub"), PROGRAM_FOLDER / "network"
    program, _ = read_program(folder, key)
    signature.check_description(key, manifest.to_dict(program), read_signature(folder)[1])


@pytest.mark.parametrize(
    ("operation", "answer", "message"),
    [
        ("revealed", "logits", "an operation must be a known one: got 'revealed'; export the program again with this"),
        ("square", "rounded", "the answer must be a known kind: got 'rounded'; use logits or top1"),
    ],
)
def test_a_program_with_what_was_taken_away_is_refused_with_the_remedy(operation, answer, message):
    described = json.loads((PROGRAM_FOLDER / "network" / MANIFEST).read_text())
    node = next(node for node in described["nodes"] if node["operation"] == "square")
    node["operation"], described["answer"] = operation, answer
    with pytest.raises(RuleError, match=message):
        manifest.from_dict(described)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_is_what_it_was(name):
    held = read_checkpoint(FOLDER / f"{name}.safetensors")
    expected = CHECKPOINTS[name]
    assert held.digest() == expected["digest"]
    assert (held.model, held.block_sizes) == (expected["model"], expected["block_sizes"])
    bits = expected["bits"]
    assert held.bits == (Bits(*bits) if bits else None)
    logits = build(held, 10, (1, 8, 8))(torch.linspace(0, 1, 64).reshape(1, 1, 8, 8))
    torch.testing.assert_close(logits[0], torch.tensor(expected["logits"]), rtol=1e-4, atol=1e-4)


def test_a_plan_and_a_profile_are_what_they_were():
    assert read_plan(FOLDER / "plan.json") == {"stem": 1, "down": 4, "conv1": 2, "conv2": 1, "classifier": 1}
    profile = read_profile(FOLDER / "profile.json")
    assert (profile.ring_degree, profile.coefficient_bits, profile.threads) == (16384, (48, 48, 48, 48, 49), 2)
    assert profile.seconds["rotate"] == 0.0006353919218682336


def test_a_program_with_the_modulus_of_an_older_table_is_refused_with_the_remedy(tmp_path):
    program, _ = read_program(PROGRAM_FOLDER / "network")
    old = replace(program.parameters, coefficient_bits=(55, 55, 54, 54), table="2018")
    write_program(tmp_path / "program", replace(program, parameters=old), {})
    with pytest.raises(RuleError, match=r"at most 214 .*: got 218 bits"):
        read_program(tmp_path / "program")
