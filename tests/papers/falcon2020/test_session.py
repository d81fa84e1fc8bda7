"""Both parties as a service runs them: descriptions, keys and messages of strangers."""

import json
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.plans import fastest, planner_of
from papers.falcon2020.protocol import description, inference
from papers.falcon2020.protocol.description import from_dict, to_dict
from papers.falcon2020.protocol.leveled_program import LeveledProgram
from papers.falcon2020.protocol.rehearsal import Rehearsal
from papers.falcon2020.protocol.session import LeveledClient, LeveledServer
from privcirnet.errors import RuleError
from privcirnet.he.program.program import ImpossibleResultError
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.session import run
from tests.he.networks import network as interactive
from tests.he.protocol import mutations
from tests.he.protocol.fuzz import refused
from tests.he.protocol.mutations import Honest
from tests.papers.falcon2020.exact_networks import image_of, network_of


@pytest.fixture(scope="module")
def program(encrypted) -> LeveledProgram:
    return LeveledProgram(network_of(encrypted.network, -3), "lola", encrypted.parameters, 1, encrypted.plan)


@pytest.fixture(scope="module")
def server(program) -> LeveledServer:
    return LeveledServer(program, "cleartext", watched=True)


@pytest.fixture(scope="module")
def greeting(server) -> bytes:
    return server.greeting()


def test_one_request_and_one_answer(program, server, greeting):
    """The second image with the same keys; an audit sees that every layer is right, and which one is not."""
    client, rehearsal = LeveledClient(greeting, "cleartext"), Rehearsal(program)
    assert to_dict(client.description) == to_dict(program.description)
    session = server.session(client.keys())
    for seed in (0, 1):
        image = image_of(program.exact, seed)
        found, traffic = run(client, session, image)
        assert list(found) == list(program.exact.evaluate(image))
        assert len(traffic) == 1
        assert traffic[0].up <= server.sizes.request
        assert traffic[0].down <= server.sizes.reply
        opened = client.opened(session.seen())
        assert rehearsal.wrong(image, opened) == []
    opened["square before fc1"][0][5] ^= np.uint64(1)
    assert rehearsal.wrong(image, opened) == ["square before fc1"]
    assert session.meter.counts["network"]["rotate"] == 2 * program.plan.circuit.counts["rotate"]


def test_a_foreign_key_gives_no_result(encrypted, program):
    """What decrypts under another key is noise, as large as the plain moduli: it is refused."""
    server = LeveledServer(program, "kernel")
    stranger = LeveledClient(server.greeting(), "kernel")
    session = server.session(wire.frame(0, encrypted.sent_keys))
    with pytest.raises(ImpossibleResultError, match="a result must have at most"):
        run(stranger, session, encrypted.image)
    cut = wire.frame(0, encrypted.sent_keys)[:-1]
    with pytest.raises(RuleError, match="a message must be whole"):
        server.session(cut)
    with pytest.raises(RuleError, match="a session of one message needs keys"):
        server.session(None)


def test_programs_of_the_other_kind_are_named(greeting):
    from privcirnet.he.protocol.parties.server import Server

    with pytest.raises(RuleError, match="must be interactive: got mode=ckks; give mode=ckks"):
        Client(greeting, "cleartext")
    with pytest.raises(RuleError, match="must be ckks: got mode=interactive"):
        LeveledClient(Server(interactive(), "cleartext").greeting(), "cleartext")
    with pytest.raises(RuleError, match="a greeting must be JSON"):
        LeveledClient(b"[" * 9, "cleartext")
    with pytest.raises(RuleError, match="engine must be a known one: got 'swift'"):
        LeveledClient(greeting, "swift")
    with pytest.raises(RuleError, match="got parameters for kernel, engine tenseal"):
        LeveledClient(greeting, "tenseal")
    with pytest.raises(RuleError, match="the plan must be a known one: got 'falcon2'"):
        planner_of("falcon2")


def test_a_program_that_its_parameters_do_not_carry_is_refused(program):
    larger = ExactNetwork(tuple(replace(o, rows=o.rows << 30) for o in program.exact.layers), 0, 4)
    with pytest.raises(RuleError, match="results must be under the product of its plain moduli"):
        replace(program, network=network_of(larger), made=None)


PACKED = description._packed(np.arange(8192) % 7)
CHANGES = {
    "format": ("other", "must have format"),
    "parameters": ({}, "must be complete"),
    "low": (9, "must have a range of pixels"),
    "bits": (400, "must have results that its plain moduli carry"),
    "lanes": (PACKED, "must have a range of pixels, and as many results"),
    "keys": ([[2, 1]], "must have keys of Galois elements"),
    "primes": (99, r"must have an integer in \[1, "),
    "summed": ([1 << 14], "must have an integer in"),
    "inputs": (8, "must have a message for each weight"),
    "columns": ("AAAA", "must have its slots in zlib's form"),
    "results": ([[0, 0], [0, 0]], "each result at a place of its own"),
    "image": ([6, 6], "must have the three sizes"),
    "shift": (1.5, "must have an integer in"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_description_is_refused(greeting, name):
    value, rule = CHANGES[name]
    with pytest.raises(RuleError, match=rule):
        from_dict({**json.loads(greeting), name: value})


def test_a_description_that_asks_for_too_much_is_refused(greeting):
    data = json.loads(greeting)
    many = {**data, "keys": [[0, 3], *([2 * i + 1, 3] for i in range(4000))]}
    with pytest.raises(RuleError, match="must have messages of at most 1073741824 bytes"):
        from_dict(many)
    data["parameters"]["coefficient_bits"] = [60] * 8
    with pytest.raises(RuleError, match="128"):
        from_dict(data)


def test_mutated_descriptions_are_refused_or_read(greeting):
    """None of them raises anything but a rule, whatever it asks for."""
    makers = mutations.change_value, mutations.nudge_number, mutations.every_number_alike, mutations.change_keys
    for seed in range(mutations.due({"greeting": 600})["greeting"]):
        random = Random(seed)
        text = mutations.deepened(random.choice(makers)(json.loads(greeting), random))
        refused(lambda text=text: LeveledClient(text.encode(errors="surrogatepass"), "cleartext"))


@pytest.mark.parametrize("name", ["kernel", "tenseal"])
def test_mutated_keys_and_requests_are_refused_before_they_are_used(name, request, monkeypatch):
    """Whatever is not refused is of the length and the residues that the parameters fix."""
    encrypted = request.getfixturevalue("encrypted" if name == "kernel" else "by_seal")
    server = LeveledServer(
        LeveledProgram(network_of(encrypted.network), "lola", encrypted.parameters, 0, encrypted.plan), name
    )
    plan = encrypted.plan.public
    keys, image = wire.frame(0, encrypted.sent_keys), wire.frame(1, [m for row in encrypted.request for m in row])
    session, reached = server.session(keys), list[int]()

    def no_run(circuit, plaintexts, inputs, engine, key):
        reached.append(len(inputs))
        raise RuleError("reached", got="a request", remedy="none")

    monkeypatch.setattr(inference, "run", no_run)
    makers = (
        *(mutations.cut, mutations.lengthen, mutations.splice, mutations.header_field, mutations.part_length),
        *(mutations.swap_parts, mutations.noise),
    )
    due = mutations.due({"keys": 120, "request": 120})
    for kind, content, use in (("keys", keys, server.session), ("request", image, session.handle)):
        honest = Honest(content, [], [], [image, keys])
        for made in _mutated(honest, makers, due[kind]):
            assert refused(lambda made=made, use=use: use(made)) or len(made) == len(content)
    assert refused(lambda: session.handle(image))
    assert set(reached) == {plan.inputs}
    assert len(reached) <= due["request"] / 2, "few mutations leave length and residues as they must be"


def _mutated(honest, makers, count):
    for seed in range(count):
        random = Random(seed)
        yield random.choice(makers)(honest, random)


def test_the_fastest_plan_is_found_and_reasons_are_given(encrypted):
    name, _, _ = fastest(encrypted.network)
    assert name == "lola", "the only one for two layers"
    with pytest.raises(RuleError, match="for a convolution and two layers behind it"):
        fastest(encrypted.network, ("periodic",))
    assert planner_of("lola") is lola_plan
