"""Once for all tests: a network of two layers, encrypted on the kernels and on SEAL at n = 8192."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.parameters import LeveledParameters, plan_for
from papers.falcon2020.planning.plan import Plan
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer, Message
from tests.papers.falcon2020.exact_networks import image_of, network


@dataclass
class Encrypted:
    """Both parties, and one image's messages."""

    network: ExactNetwork
    plan: Plan
    parameters: LeveledParameters
    client: LeveledInferenceClient
    server: LeveledInferenceServer
    keys: list[Any]
    image: np.ndarray
    sent_keys: list[bytes]
    request: Message


def encrypted_by(engine: str) -> Encrypted:
    """The parties after the keys."""
    made = network(2, 6, 3, 3)
    made = ExactNetwork((made.layers[0], made.layers[1]), made.low, made.high)
    plan, parameters = plan_for(made, lola_plan, engine)
    client = LeveledInferenceClient(plan.public, parameters, engine)
    server = LeveledInferenceServer(plan, parameters, engine)
    sent, image = client.keys(), image_of(made)
    keys = server.load_keys(sent)
    return Encrypted(made, plan, parameters, client, server, keys, image, sent, client.request(image))


@pytest.fixture(scope="session")
def encrypted() -> Encrypted:
    """On the kernels."""
    return encrypted_by("kernel")


@pytest.fixture(scope="session")
def by_seal() -> Encrypted:
    """The oracle."""
    return encrypted_by("tenseal")
