"""Program folders: round trips, the golden format, encoded plaintexts, and folders that are refused."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from tenseal import sealapi as seal

from privcirnet.artifact.folder import MANIFEST
from privcirnet.artifact.program import (
    FULL_FOLDER,
    PLAINTEXTS,
    WEIGHTS,
    folder_bytes,
    plaintext_coefficients,
    read_program,
    spectra,
    write_program,
)
from privcirnet.errors import RuleError
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.bsgs import Product
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.program import manifest
from privcirnet.he.program.operation import Node, Weights
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Program
from privcirnet.he.ring import modular
from tests.artifact.samples import assert_same_program, contents, layer_program
from tests.he.networks import attention, network


class TestProgramRoundTrips:
    def test_program(self, tmp_path):
        program = network()
        write_program(tmp_path / "p", program, {})
        found, slots = read_program(tmp_path / "p")
        assert_same_program(found, program)
        expected = spectra(program)
        assert slots.keys() == expected.keys()
        for name, values in expected.items():
            assert slots[name].dtype == np.uint64
            assert np.array_equal(slots[name], values)

    def test_weights_over_8_bits(self, tmp_path):
        program = layer_program(4, 8)
        wide = Weights(program.weights["conv"].rows * 1000, program.weights["conv"].bias * 2**40)
        program = dataclasses.replace(program, weights={"conv": wide})
        write_program(tmp_path / "p", program, {})
        assert_same_program(read_program(tmp_path / "p")[0], program)
        assert safetensors.numpy.load_file(tmp_path / "p" / WEIGHTS)["conv.rows"].dtype == np.int32

    def test_weights_that_are_views(self, tmp_path):
        """The library writes memory as it lies, so that a view has to be laid out first."""
        program = layer_program(4, 8)
        rows = program.weights["conv"].rows
        view = np.ascontiguousarray(rows.transpose(3, 2, 1, 0)).transpose(3, 2, 1, 0)
        assert not view.flags.c_contiguous
        write_program(
            tmp_path / "p",
            dataclasses.replace(program, weights={"conv": Weights(view, program.weights["conv"].bias)}),
            {},
        )
        assert_same_program(read_program(tmp_path / "p")[0], program)


class TestFormat:
    """Golden: what another program can rely on."""

    def test_manifest_tells_no_weight(self, folder):
        text = (folder / MANIFEST).read_text()
        without = dataclasses.replace(network(), weights={})
        data = json.loads(text)
        public = json.loads(json.dumps(manifest.to_dict(without)))
        assert public == {key: data[key] for key in ("parameters", "bounds", "answer", "output_bits", "nodes")}

    def test_files(self, folder, tmp_path):
        write_program(tmp_path / "compact", network(), {})
        assert folder_bytes(tmp_path / "compact").keys() == {MANIFEST, WEIGHTS, PLAINTEXTS}
        sizes = folder_bytes(folder)
        assert len(sizes) == 6
        assert json.loads((folder / MANIFEST).read_text())["classes"] == ["a", "b"]
        assert sizes[WEIGHTS] == (folder / WEIGHTS).stat().st_size


def test_block_size_saves_its_factor_on_disk(tmp_path):
    sizes = {}
    for b in (1, 8):
        write_program(tmp_path / str(b), layer_program(b), {})
        sizes[b] = folder_bytes(tmp_path / str(b))
    assert 7.5 < sizes[1][PLAINTEXTS] / sizes[8][PLAINTEXTS] <= 8
    assert 7 < sizes[1][WEIGHTS] / sizes[8][WEIGHTS] <= 8


class TestFullPlaintexts:
    def test_every_product_of_the_plan_is_there(self, folder):
        program, slots = read_program(folder)
        for node, layer in program.linear_nodes:
            found = safetensors.numpy.load_file(folder / FULL_FOLDER / f"{node.name}.safetensors")
            products, coefficients = plaintext_coefficients(layer, slots[node.name], program.parameters.plain_modulus)
            assert np.array_equal(found["products"], products)
            assert np.array_equal(found["coefficients"], coefficients)
            planned = [(i, product) for i, placed in enumerate(layer.placed) for product in placed.plan.products]
            assert [(piece, Product(*row)) for piece, *row in products.tolist()] == planned
            assert coefficients.shape == (layer.pmults, 8192)
        assert {len(layer.pieces) for _, layer in program.linear_nodes} > {1}

    def test_seal_multiplies_slots_by_a_plaintext_of_the_file(self, folder):
        """Plain SEAL, nothing of this package between the file and the product."""
        program, slots = read_program(folder)
        parameters, (node, layer) = program.parameters, program.linear_nodes[1]
        t = parameters.plain_modulus
        found = safetensors.numpy.load_file(folder / FULL_FOLDER / f"{node.name}.safetensors")
        place = len(found["products"]) // 2
        piece, *product_of_plan = found["products"][place].tolist()
        text = " + ".join(f"{int(c):X}x^{i}" for i, c in reversed(list(enumerate(found["coefficients"][place]))) if c)
        plaintext = seal.Plaintext(text.replace("x^0", ""))

        literal = seal.EncryptionParameters(seal.SCHEME_TYPE.BFV)
        literal.set_poly_modulus_degree(parameters.ring_degree)
        literal.set_coeff_modulus(seal.CoeffModulus.Create(parameters.ring_degree, list(parameters.coefficient_bits)))
        literal.set_plain_modulus(t)
        context = seal.SEALContext(literal, True, seal.SEC_LEVEL_TYPE.TC128)
        keys, encoder = seal.KeyGenerator(context), seal.BatchEncoder(context)
        values = np.random.default_rng(0).integers(0, t, parameters.ring_degree, dtype=np.uint64)
        encoded, ciphertext, product, decrypted = (
            seal.Plaintext(),
            seal.Ciphertext(),
            seal.Ciphertext(),
            seal.Plaintext(),
        )
        encoder.encode(values.tolist(), encoded)
        seal.Encryptor(context, _public_key(keys)).encrypt(encoded, ciphertext)
        seal.Evaluator(context).multiply_plain(ciphertext, plaintext, product)
        seal.Decryptor(context, keys.secret_key()).decrypt(product, decrypted)
        result = np.array(encoder.decode_uint64(decrypted), dtype=np.uint64)

        diagonal = spectral_layer.diagonal_slots(
            layer.layout, layer.placed[piece], slots[node.name], Product(*product_of_plan)
        )
        assert diagonal.any()
        assert np.array_equal(result, modular.multiply(values, diagonal, t))

    def test_slots_are_the_weights_spectrum(self):
        """A 1 x 1 layer with b = 2 by hand: the transform of length 2 of [w0, w1] is [w0 + w1, w0 - w1]."""
        layer = cheapest_layer(LinearShape.gemm(1, 2, 2), 2, COUNTED, LINKS["local"])
        parameters = choose({2}, 50)
        program = Program(
            (Node("x", Input(0, 1), (), (2, 1, 1), 0), Node("y", Linear(layer), ("x",), (2, 1, 1), 0)),
            parameters,
            {"y": Weights(np.array([[5, 3]])[..., None, None], np.zeros(2, dtype=np.int64))},
        )
        assert expand_rows(program.weights["y"].rows, 2)[..., 0, 0].tolist() == [[5, 3], [3, 5]]
        spectrum = spectra(program)["y"]
        assert spectrum.ravel().tolist() == [8, 2]
        products, coefficients = plaintext_coefficients(layer, spectrum, parameters.plain_modulus)
        assert products.tolist() == [[0, 0, 0, 0, 0]]
        slots = _evaluate(coefficients[0], parameters.plain_modulus)
        assert set(slots) <= {0, 8, 2}
        assert {8, 2} <= set(slots)


def _public_key(keys: seal.KeyGenerator) -> seal.PublicKey:
    public = seal.PublicKey()
    keys.create_public_key(public)
    return public


def _evaluate(coefficients: np.ndarray, t: int) -> list[int]:
    """A polynomial at a few of the roots where slots are, by Horner's rule."""
    n = len(coefficients)
    psi = modular.minimal_root(2 * n, t)
    found = []
    for exponent in (1, 3, 9, 2 * n - 1, 2 * n - 3):
        root, value = pow(psi, exponent, t), 0
        for coefficient in reversed(coefficients.tolist()):
            value = (value * root + coefficient) % t
        found.append(value)
    return found


class TestForeignFoldersAreLeftAlone:
    @pytest.mark.parametrize(
        "files", [{}, {"thesis.tex": "x"}, {MANIFEST: '{"name": "app"}'}, {MANIFEST: "[]"}, {MANIFEST: "no json"}]
    )
    def test_it_is_not_overwritten(self, tmp_path, files):
        target = tmp_path / "mine"
        target.mkdir()
        for name, text in files.items():
            (target / name).write_text(text)
        before = contents(tmp_path)
        message = "the program's folder must be new or hold a program: got .*mine"
        with pytest.raises(RuleError, match=message):
            write_program(target, layer_program(4, 8), {})
        assert contents(tmp_path) == before
        assert target.is_dir()

    def test_a_file_is_not_overwritten(self, tmp_path):
        (tmp_path / "mine").write_text("x")
        with pytest.raises(RuleError, match="must be new or hold a program"):
            write_program(tmp_path / "mine", layer_program(4, 8), {})
        assert (tmp_path / "mine").read_text() == "x"

    def test_nor_a_program_where_that_is_not_wanted(self, folder):
        before = contents(folder)
        with pytest.raises(RuleError, match="must be new or hold a program"):
            write_program(folder, layer_program(4, 8), {}, replace=False)
        assert contents(folder) == before


DAMAGE = (
    "manifest must be readable JSON|must be a privcirnet-program of version 4|must match their checksums"
    "|must list its files' checksums"
)


class TestDamagedPrograms:
    @pytest.mark.parametrize("name", [MANIFEST, WEIGHTS, PLAINTEXTS, f"{FULL_FOLDER}/head.safetensors"])
    def test_a_flipped_byte(self, folder, name):
        path = folder / name
        good = path.read_bytes()
        for place in np.linspace(0, len(good) - 2, 12).astype(int):
            path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
            with pytest.raises(RuleError, match=DAMAGE) as caught:
                read_program(folder)
            assert caught.value.remedy
        path.write_bytes(good)
        assert_same_program(read_program(folder)[0], network())

    @pytest.mark.parametrize("name", [MANIFEST, WEIGHTS, PLAINTEXTS, f"{FULL_FOLDER}/head.safetensors"])
    def test_truncated_and_missing(self, folder, name):
        path = folder / name
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(RuleError, match=DAMAGE):
            read_program(folder)
        path.unlink()
        with pytest.raises(RuleError, match=rf"{'must exist' if name == MANIFEST else 'checksums: got'}"):
            read_program(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": "other"}, "must be a privcirnet-program of version 4: got .* other 4"),
            ({"version": 5}, "must be a privcirnet-program of version 4: got .* privcirnet-program 5"),
            ({"version": None}, "must be a privcirnet-program of version 4"),
            ({"version": "one"}, "must be a privcirnet-program of version 4"),
            ({"checksums": None}, "must list its files' checksums"),
            ({"checksums": {}}, "must list its files' checksums"),
            ({"bounds": "measured"}, "must match their checksums: got .*manifest.json"),
        ],
    )
    def test_a_foreign_manifest(self, folder, change, message):
        data = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(data | change))
        with pytest.raises(RuleError, match=message):
            read_program(folder)

    def test_white_space_and_order_do_not_matter(self, folder):
        data = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(dict(reversed(data.items())), indent=4))
        assert_same_program(read_program(folder)[0], network())

    @pytest.mark.parametrize(
        ("file", "tensors", "message"),
        [
            (WEIGHTS, {"head.rows": None}, r"tensor head.rows must be integers \(5, 32, 1, 1\): got none"),
            (WEIGHTS, {"head.rows": np.zeros((5, 32), np.int8)}, r"head.rows must be integers .*: got int8 \(5, 32\)"),
            (WEIGHTS, {"head.bias": np.zeros(10)}, r"head.bias must be integers \(10,\): got float64 \(10,\)"),
            (WEIGHTS, {"head.bias": np.full(10, 2**60)}, "a bias must be under the value bound: got head"),
            (PLAINTEXTS, {"head": np.zeros((1, 5, 16, 2, 1, 1))}, "tensor head must be integers"),
            (
                PLAINTEXTS,
                {"head": np.full((1, 5, 16, 2, 1, 1), 2**63, np.uint64)},
                "plaintexts must be those of its weights: got others in head",
            ),
        ],
    )
    def test_tensors_that_do_not_fit_under_right_checksums(self, folder, file, tensors, message):
        found = safetensors.numpy.load_file(folder / file) | tensors
        _rewrite(folder, file, safetensors.numpy.save({n: t for n, t in found.items() if t is not None}))
        with pytest.raises(RuleError, match=message):
            read_program(folder)

    @pytest.mark.parametrize(
        ("name", "tensor", "message"),
        [
            (
                "tokens.bias",
                np.zeros((8, 4), np.int64),
                r"tensor tokens.bias must be integers \(8, 5\): got int64 \(8, 4\)",
            ),
            ("tokens.bias", None, r"tokens.bias must be integers \(8, 5\): got none"),
            ("tokens.bias", np.full((8, 5), -(2**59)), "a bias must be under the value bound: got tokens"),
            ("scores.bias", np.zeros(8, np.int64), r"tensor scores.bias must be integers \(10,\): got int64 \(8,\)"),
        ],
    )
    def test_constants_that_do_not_fit_under_right_checksums(self, tmp_path, name, tensor, message):
        folder = tmp_path / "program"
        write_program(folder, attention(), {})
        assert_same_program(read_program(folder)[0], attention())
        found = safetensors.numpy.load_file(folder / WEIGHTS) | {name: tensor}
        assert not [key for key in found if key.endswith(".rows") and key.partition(".")[0] in ("tokens", "scores")]
        _rewrite(folder, WEIGHTS, safetensors.numpy.save({n: t for n, t in found.items() if t is not None}))
        with pytest.raises(RuleError, match=message):
            read_program(folder)

    def test_a_file_of_another_kind_under_the_right_checksum(self, folder):
        _rewrite(folder, WEIGHTS, b"not a safetensors file")
        with pytest.raises(RuleError, match=r"must be whole safetensors files: got .*weights.safetensors"):
            read_program(folder)


def _rewrite(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    facts = json.loads((folder / MANIFEST).read_text())
    facts["checksums"][name] = hashlib.sha256(data).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(facts))
