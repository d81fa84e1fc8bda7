"""INSECURE: a small residual network at n = 1024 as a program that can be served; only tests get past the check."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

from privcirnet.he.ckks.program import CkksProgram
from privcirnet.he.protocol.one_message import ckks
from tests.passes.lower.test_ckks import images_of, program_of, resnet20

LOG_STEP = -16
honest_parameters = ckks.parameters_from


@cache
def program() -> CkksProgram:
    return program_of(resnet20(), 8, LOG_STEP)


def images(count: int = 2) -> np.ndarray:
    """Those of the test of lowering, in steps of 2^-16."""
    return np.rint(images_of(8).double().numpy()[:count] / 2.0**LOG_STEP).astype(int)


@contextmanager
def insecure() -> Generator[None]:
    """Both parties take the toy's parameters, whatever a description says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ckks, "parameters_from", lambda data: program().bootstrapping.parameters)
        yield
