"""Somebody in the server's place describes another program than the one that its owner published.

A client that pins the owner's key takes a description only with the owner's signature. What the signature does not say
is that the server computes with the owner's weights: of those a client sees nothing.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from privcirnet.artifact.folder import read_signature
from privcirnet.artifact.program import read_program, write_program
from privcirnet.errors import RuleError
from privcirnet.he.program import signature
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from tests.he.networks import network, residual_of_the_image

PROGRAM = replace(network(), output_bits=24)


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> tuple[bytes, signature.PublicKey]:
    """A server's greeting, from a folder that its owner signed, and the owner's public key."""
    folder = Path(tmp_path_factory.mktemp("signed"))
    public = signature.make_keys(folder / "key.pem")
    write_program(folder / "program", PROGRAM, {}, key=signature.read_private(folder / "key.pem"))
    program, spectra = read_program(folder / "program")
    _, description = read_signature(folder / "program")
    return Server(program, "cleartext", spectra, signature=description).greeting(), signature.read_public(public)


FORGED: dict[str, Callable[[dict], object]] = {
    "no signature": lambda data: data.pop("signature"),
    "a wider result": lambda data: data.update(output_bits=44),
    "another node": lambda data: data["nodes"][1].update(module="other"),
    "one fact more": lambda data: data.update(extra=1),
    "a signature that is no text": lambda data: data.update(signature=7),
    "a signature that is no number": lambda data: data.update(signature="not hexadecimal"),
    "an empty signature": lambda data: data.update(signature=""),
}


@pytest.mark.parametrize("change", FORGED)
def test_other_greetings_are_refused(signed, change):
    greeting, key = signed
    data = json.loads(greeting)
    assert Client(json.dumps(data).encode(), "cleartext", key).program == replace(PROGRAM, weights={})
    FORGED[change](data)
    with pytest.raises(RuleError, match="must be signed with the key that model_key names"):
        Client(json.dumps(data).encode(), "cleartext", key)


def test_a_signature_is_for_one_program(signed):
    greeting, key = signed
    other = json.loads(Server(residual_of_the_image(), "cleartext").greeting())
    other["signature"] = json.loads(greeting)["signature"]
    with pytest.raises(RuleError, match="got a signature that is not"):
        Client(json.dumps(other).encode(), "cleartext", key)


def test_a_folder_s_signature_is_none_of_a_description(tmp_path):
    """Both are signatures of bytes; each says what it is of."""
    signature.make_keys(tmp_path / "key")
    key, public = signature.read_private(tmp_path / "key"), signature.read_public(tmp_path / "key.pub")
    description = {"nodes": []}
    as_folder = signature.sign_folder(key, json.dumps(description, separators=(",", ":")).encode())
    with pytest.raises(RuleError, match="must be signed"):
        signature.check_description(public, description, as_folder)
