"""An operation that is new to the package runs in leveled BFV too, as the primitives of a domain express it."""

import pytest

from papers.falcon2020.planning.exact_network import exact_network_of
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.errors import RuleError
from privcirnet.he.program import operations as op
from tests.he.program.test_toy_operation import images, logits, network


def test_it_is_computed() -> None:
    made, image = network(), images(1)[0]
    plan, parameters = plan_for(exact_network_of(made), lola_plan)
    client, server = LeveledInferenceClient(plan.public, parameters), LeveledInferenceServer(plan, parameters)
    answer = server.answer(client.request(image), server.load_keys(client.keys()))
    assert list(client.results(answer)) == logits(made, image).tolist()
    client.close()


def test_what_it_cannot_be_computed_with_is_said() -> None:
    rule = "a leveled network cannot have truncations here: got truncate 'toy'; infer it with the interactive protocol"
    with pytest.raises(RuleError, match=rule):
        exact_network_of(network(affine=op.Truncate(1)))
