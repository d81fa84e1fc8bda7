"""Which sums of products take rotations before their division by the special primes, and that it changes no slot."""

from dataclasses import replace

import numpy as np
import pytest

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.circuits.double_hoisting import with_double_hoisting
from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.circuits.network_circuit import Combine


def ones(t: int) -> np.ndarray:
    return np.ones(64, dtype=np.uint64)


@pytest.mark.parametrize(("sums", "extended"), [(1, True), (3, True), (100, False)])
def test_each_rotation_saves_one_division_however_many_sums_read_it(sums, extended):
    builder = Builder(64, 1)
    rotated = [builder.rotate(0, columns) for columns in range(1, 4)]
    made = [builder.weighted([(value, ones) for value in rotated]) for _ in range(sums)]
    found = with_double_hoisting(builder.built([builder.total(made)]), 2, 1)
    assert {step.extended for step in found.steps if isinstance(step, Combine)} == {extended}


def test_products_of_what_is_not_rotated_are_not_extended():
    builder = Builder(64, 1)
    found = with_double_hoisting(builder.built([builder.weighted([(0, ones)])]), 2, 1)
    assert not found.steps[0].extended


def test_extended_sums_have_the_same_slots(encrypted):
    circuit, server, top = encrypted.plan.circuit, encrypted.server.engine, len(encrypted.parameters.data_bits)
    assert any(isinstance(step, Combine) and step.extended for step in circuit.steps)
    received, nothing = server.receive_all(encrypted.request), np.zeros(circuit.ring_degree, dtype=np.uint64)
    for number, evaluator in enumerate(server.evaluators):
        slots = []
        for extended in (False, True):
            steps = [replace(step, extended=extended) if isinstance(step, Combine) else step for step in circuit.steps]
            other, keys = replace(circuit, steps=tuple(steps)), encrypted.keys[number]
            plaintexts = encode(other, evaluator, top)
            outputs = run(other, plaintexts, received[number](), evaluator, keys)
            answers = [evaluator.answer(output, nothing, keys) for output in outputs]
            slots.append([encrypted.client.engine.decrypt(number, answer) for answer in answers])
        assert np.array_equal(*slots)
