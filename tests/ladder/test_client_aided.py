"""What is special about activations that the client computes: they must be asked for by name."""

import pytest
from torch import nn

from privcirnet.config import HEConfig
from privcirnet.errors import RuleError
from privcirnet.he.planning.fit import Target
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.lower import lower
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from tests.ladder.case import LEVELS, LOG_STEP, real
from tests.ladder.client_aided import AIDED, CLIENT_AIDED

SHAPE = CLIENT_AIDED.shape


def test_every_activation_is_revealed_once():
    functions = [node.operation.function for node in CLIENT_AIDED.program.revealed_nodes]
    assert functions == ["relu", "gelu", "relu", "relu6", "silu", "hardswish"]


def test_who_did_not_ask_is_refused_and_told_how():
    with pytest.raises(RuleError, match=r"relu \(ReLU\).*he\.nonlinear=client-aided"):
        lower(CLIENT_AIDED.quantized, SHAPE, LEVELS, LOG_STEP, Target(COUNTED, LINKS["local"]))


def test_the_setting_has_two_values():
    assert HEConfig().nonlinear == "refused"
    with pytest.raises(RuleError, match=r"he\.nonlinear"):
        HEConfig(nonlinear="yes")


def test_an_approximation_is_named():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GELU(approximate="tanh"), nn.Flatten(), nn.Linear(144, 4)).double()
    images = real(CLIENT_AIDED.images)
    with pytest.raises(RuleError, match=r"1 \(GELU\)"):
        lower(quantize(fuse(model.eval()), [images], LOG_STEP), SHAPE, LEVELS, LOG_STEP, AIDED)
