import dataclasses
import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open
from tenseal import sealapi as seal

from privcirnet.artifact import (
    FULL_FOLDER,
    MANIFEST,
    PLAINTEXTS,
    WEIGHTS,
    Checkpoint,
    folder_bytes,
    plaintext_coefficients,
    read_checkpoint,
    read_json,
    read_plan,
    read_profile,
    read_program,
    records,
    spectra,
    write_arrays,
    write_checkpoint,
    write_json,
    write_plan,
    write_program,
    write_text,
)
from privcirnet.artifact import program as programs
from privcirnet.artifact.atomic import forget_drafts, replacing, replacing_folder, room_for
from privcirnet.errors import RuleError
from privcirnet.he.encodings import spectral
from privcirnet.he.encodings.bsgs import Product
from privcirnet.he.encodings.integer import expand_rows
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.params.parameters import choose
from privcirnet.he.planning.cost import COUNTED, LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.program import manifest
from privcirnet.he.program.operations import Input, Linear
from privcirnet.he.program.program import Node, Program, Weights
from privcirnet.he.ring import modular, roots
from tests.he.networks import attention, network

CHECKPOINT = Checkpoint(
    {
        "scalar": np.array(7, dtype=np.int64),
        "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,
        "strided": np.arange(20, dtype=np.float64)[::3],
        "reversed": np.arange(5, dtype=np.float32)[::-1],
        "empty": np.zeros((0, 3), dtype=np.float32),
    },
    "digits_resnet",
    "qat",
    {"conv1": 8, "stem": 1},
    (8, 6),
    {"activation": "square"},
)


def layer_program(b: int, channels: int = 64, seed: int = 0) -> Program:
    """One 3 x 3 convolution."""
    shape = LinearShape(4, 4, channels, channels, 3, 1, 1)
    layer = cheapest_layer(shape, b, COUNTED, LINKS["local"])
    random = np.random.default_rng(seed)
    rows = random.integers(-127, 128, (channels // b, channels, 3, 3))
    weights = {"conv": Weights(rows, random.integers(-1000, 1000, channels))}
    image = Node("x", Input(0, 16), (), shape.input_shape, -4)
    nodes = (image, Node("conv", Linear(layer), ("x",), shape.output_shape, -11, "features.conv"))
    return Program(nodes, choose(layer.transform_lengths, 50), weights)


def assert_same_program(found: Program, expected: Program) -> None:
    bare = [dataclasses.replace(program, weights={}) for program in (found, expected)]
    assert bare[0] == bare[1]
    assert found.weights.keys() == expected.weights.keys()
    for name, weights in expected.weights.items():
        for tensor in ("rows", "bias"):
            assert getattr(found.weights[name], tensor).dtype == np.int64
            assert np.array_equal(getattr(found.weights[name], tensor), getattr(weights, tensor))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("written") / "program"
    write_program(path, network(), {"classes": ["a", "b"], "counts": {2: 1, 10: 0.1}}, full=True)
    return path


@pytest.fixture
def folder(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "program"))


class TestRoundTrips:
    def test_checkpoint(self, tmp_path):
        write_checkpoint(tmp_path / "new" / "c.safetensors", CHECKPOINT)
        found = read_checkpoint(tmp_path / "new" / "c.safetensors")
        assert dataclasses.replace(found, tensors={}) == dataclasses.replace(CHECKPOINT, tensors={})
        assert found.tensors.keys() == CHECKPOINT.tensors.keys()
        for name, tensor in CHECKPOINT.tensors.items():
            assert found.tensors[name].shape == tensor.shape, name
            assert found.tensors[name].dtype == tensor.dtype
            assert np.array_equal(found.tensors[name], tensor), name

    def test_dense_checkpoint(self, tmp_path):
        write_checkpoint(tmp_path / "c", Checkpoint({}, "resnet18", "train", {}))
        assert read_checkpoint(tmp_path / "c") == Checkpoint({}, "resnet18", "train", {}, None)

    def test_plan(self, tmp_path):
        write_plan(tmp_path / "plan.json", {"b": 4, "a": 1}, budget_seconds=0.5)
        assert list(read_plan(tmp_path / "plan.json").items()) == [("b", 4), ("a", 1)]
        assert json.loads((tmp_path / "plan.json").read_text())["budget_seconds"] == 0.5

    def test_profile(self, tmp_path):
        write_json(tmp_path / "profile.json", COUNTED.to_dict())
        assert read_profile(tmp_path / "profile.json") == COUNTED

    def test_text_and_arrays(self, tmp_path):
        write_text(tmp_path / "a" / "text", "\u00fc\n")
        assert (tmp_path / "a" / "text").read_bytes() == b"\xc3\xbc\n"
        write_arrays(tmp_path / "arrays.npz", images=np.arange(6).reshape(2, 3).T)
        assert np.load(tmp_path / "arrays.npz")["images"].tolist() == [[0, 3], [1, 4], [2, 5]]
        assert oct((tmp_path / "arrays.npz").stat().st_mode & 0o777) == "0o644"

    @pytest.mark.parametrize("masks", ["uniform", "bounded"])
    def test_program(self, tmp_path, masks):
        program = network(masks)
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

    def test_manifest(self, folder):
        data = json.loads((folder / MANIFEST).read_text())
        assert list(data) == [
            "format",
            "version",
            "classes",
            "counts",
            "parameters",
            "masks",
            "bounds",
            "nodes",
            "checksums",
        ]
        assert (data["format"], data["version"], data["masks"]) == ("privcirnet-program", 1, "uniform")
        assert data["classes"] == ["a", "b"]
        assert data["parameters"].keys() == {"ring_degree", "coefficient_bits", "plain_modulus"}
        assert data["nodes"][0] == {
            "name": "x",
            "operation": "input",
            "low": -8,
            "high": 15,
            "inputs": [],
            "shape": [4, 8, 8],
            "log_step": -4,
            "module": "",
        }
        first = data["nodes"][1]
        assert list(first) == ["name", "operation", "layer", "inputs", "shape", "log_step", "module"]
        assert first["operation"] == "linear"
        assert first["layer"]["block_size"] == 2
        assert first["layer"]["shape"] == {
            "height": 8,
            "width": 8,
            "in_channels": 4,
            "out_channels": 8,
            "kernel": 3,
            "stride": 2,
            "padding": 1,
            "groups": 1,
        }
        second = data["nodes"][5]
        assert second["name"] == "second"
        assert second["layer"]["tile"] == [2, 3]
        assert second["layer"]["pieces"][1] == {
            "groups": 1,
            "tiles": 1,
            "lanes": 16,
            "baby_steps": 1,
            "copies": 2,
            "giants_on_shares": True,
            "folds_on_shares": True,
        }
        assert [node["operation"] for node in data["nodes"]][2:] == [
            "truncate", "square", "truncate", "linear", "truncate", "add", "sumpool", "flatten", "linear",
        ]  # fmt: skip
        full = {f"{FULL_FOLDER}/{name}.safetensors" for name in ("first", "second", "head")}
        assert data["checksums"].keys() == {MANIFEST, WEIGHTS, PLAINTEXTS} | full

    def test_manifest_tells_no_weight(self, folder):
        text = (folder / MANIFEST).read_text()
        without = dataclasses.replace(network(), weights={})
        data = json.loads(text)
        public = json.loads(json.dumps(manifest.to_dict(without)))
        assert public == {key: data[key] for key in ("parameters", "masks", "bounds", "nodes")}

    def test_tensors(self, folder):
        weights = safetensors.numpy.load_file(folder / WEIGHTS)
        assert {name: (t.dtype.name, t.shape) for name, t in weights.items()} == {
            "first.rows": ("int8", (4, 4, 3, 3)),
            "first.bias": ("int64", (8,)),
            "second.rows": ("int8", (4, 8, 3, 3)),
            "second.bias": ("int64", (8,)),
            "head.rows": ("int8", (5, 32, 1, 1)),
            "head.bias": ("int64", (10,)),
        }
        plaintexts = safetensors.numpy.load_file(folder / PLAINTEXTS)
        assert plaintexts.keys() == {"first", "second", "head"}
        assert plaintexts["first"].shape == (1, 4, 4 * 2, 2, 5, 5)
        assert plaintexts["second"].shape == (1, 4, 4, 2, 4, 5)
        assert plaintexts["head"].shape == (1, 5, 16, 2, 1, 1)
        assert all(tensor.dtype == np.uint64 for tensor in plaintexts.values())

    def test_files(self, folder, tmp_path):
        write_program(tmp_path / "compact", network(), {})
        assert folder_bytes(tmp_path / "compact").keys() == {MANIFEST, WEIGHTS, PLAINTEXTS}
        sizes = folder_bytes(folder)
        assert len(sizes) == 6
        assert sizes[WEIGHTS] == (folder / WEIGHTS).stat().st_size

    def test_checkpoint_metadata(self, tmp_path):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        with safe_open(tmp_path / "c", framework="numpy") as file:
            assert file.metadata() == {
                "format": "privcirnet-checkpoint",
                "version": "1",
                "model": "digits_resnet",
                "stage": "qat",
                "block_sizes": '{"conv1": 8, "stem": 1}',
                "bits": "[8, 6]",
                "arguments": '{"activation": "square"}',
            }


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

        diagonal = spectral.diagonal_slots(
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
    psi = roots.minimal_root(2 * n, t)
    found = []
    for exponent in (1, 3, 9, 2 * n - 1, 2 * n - 3):
        root, value = pow(psi, exponent, t), 0
        for coefficient in reversed(coefficients.tolist()):
            value = (value * root + coefficient) % t
        found.append(value)
    return found


def test_drafts_of_a_killed_process_are_forgotten(tmp_path: Path) -> None:
    whole, other = tmp_path / "whole", tmp_path / ".hidden"
    whole.write_bytes(b"1")
    other.write_bytes(b"2")
    with replacing(whole) as draft:
        draft.write_bytes(b"3")
        forget_drafts(tmp_path)
        assert not draft.exists()
        draft.write_bytes(b"4")
    assert (whole.read_bytes(), other.read_bytes()) == (b"4", b"2")
    forget_drafts(tmp_path / "nowhere")
    assert sorted(tmp_path.iterdir()) == [other, whole]


class TestAtomic:
    def test_a_file(self, tmp_path, monkeypatch):
        path = tmp_path / "c.safetensors"
        write_checkpoint(path, CHECKPOINT)
        before = contents(tmp_path)
        monkeypatch.setattr(records, "write_tensors", _half_a_file)
        with pytest.raises(OSError, match="disk full"):
            write_checkpoint(path, Checkpoint({}, "", "", {}))
        assert contents(tmp_path) == before
        with pytest.raises(OSError, match="disk full"):
            write_checkpoint(tmp_path / "other", CHECKPOINT)
        assert contents(tmp_path) == before

    @pytest.mark.parametrize(
        "write",
        [
            lambda path: write_checkpoint(path, dataclasses.replace(CHECKPOINT, tensors={"a": np.zeros(10_000)})),
            lambda path: write_text(path, "x" * 40_000),
            lambda path: write_arrays(path, a=np.random.default_rng(0).random(10_000)),
        ],
        ids=["checkpoint", "text", "arrays"],
    )
    def test_a_full_disk(self, tmp_path, file_limit, write):
        path = tmp_path / "file"
        write_text(path, "whole")
        file_limit(20_000)
        with pytest.raises(RuleError, match=f"a disk must have room .*: got {path}: File too large; make room and .*"):
            write(path)
        assert contents(tmp_path) == {"file": b"whole"}

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    @pytest.mark.parametrize("context", [replacing, replacing_folder, room_for])
    def test_no_room_in_the_system_s_words(self, tmp_path, context, number):
        path = tmp_path / "name"
        with pytest.raises(RuleError, match=f"got {path}: {os.strerror(number)}; make room"), context(path):
            raise OSError(number, "in the way it is raised")
        assert not list(tmp_path.iterdir())

    def test_a_folder_on_a_full_disk(self, folder, file_limit):
        before = contents(folder.parent)
        file_limit(500)
        with pytest.raises(RuleError, match=r"a disk must have room .*: got .*: File too large"):
            write_program(folder, layer_program(4), {})
        assert contents(folder.parent) == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_other_errors_pass(self, tmp_path):
        with pytest.raises(PermissionError, match="not yours"), room_for(tmp_path):
            raise PermissionError(errno.EACCES, "not yours")
        with pytest.raises(RuleError, match=r"got .*inner: No space left"), room_for(tmp_path / "outer"):
            _inner(tmp_path / "inner")

    def test_json_that_cannot_be_written(self, tmp_path):
        write_json(tmp_path / "a.json", {"x": 1})
        with pytest.raises(TypeError, match="not JSON serializable"):
            write_json(tmp_path / "a.json", {"x": object()})
        assert contents(tmp_path) == {"a.json": b'{\n "x": 1\n}\n'}

    @pytest.mark.parametrize("function", ["write_tensors", "_write_full", "write_json"])
    def test_a_folder(self, folder, monkeypatch, function):
        before = contents(folder.parent)
        monkeypatch.setattr(programs, function, _half_a_file)
        for target in (folder, folder.with_name("other")):
            with pytest.raises(OSError, match="disk full"):
                write_program(target, layer_program(4, 8), {}, full=True)
            assert contents(folder.parent) == before
            assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_a_folder_that_cannot_take_its_place(self, folder, monkeypatch):
        """The old program was moved away already; it comes back."""
        before = contents(folder.parent)
        rename = Path.replace

        def failing(self: Path, target: Path) -> Path:
            if target == folder and (self / "new").exists():
                raise OSError("no such luck")
            return rename(self, target)

        monkeypatch.setattr(Path, "replace", failing)
        with pytest.raises(OSError, match="no such luck"), replacing_folder(folder) as draft:
            (draft / "new").touch()
        assert contents(folder.parent) == before
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]

    def test_a_newer_program_replaces_the_old_one_whole(self, folder):
        program = layer_program(4, 8)
        write_program(folder, program, {})
        assert_same_program(read_program(folder)[0], program)
        assert [path.name for path in folder.parent.iterdir()] == [folder.name]
        assert not (folder / FULL_FOLDER).exists()


def _inner(path: Path) -> None:
    with room_for(path):
        raise OSError(errno.ENOSPC, "full")


def _half_a_file(first: Path, *_: object, **__: object) -> None:
    (first / "half" if first.is_dir() else first).write_bytes(b"half")
    raise OSError("disk full")


class TestForeignFoldersAreLeftAlone:
    @pytest.mark.parametrize(
        "files",
        [{}, {"thesis.tex": "x"}, {MANIFEST: '{"name": "app"}'}, {MANIFEST: "[]"}, {MANIFEST: "no json"}],
    )
    def test_it_is_not_overwritten(self, tmp_path, files):
        target = tmp_path / "mine"
        target.mkdir()
        for name, text in files.items():
            (target / name).write_text(text)
        before = contents(tmp_path)
        message = "the program's folder must be new or hold a program: got .*mine; choose another out= folder"
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
    "manifest must be readable JSON|must be a privcirnet-program of version 1|must match their checksums"
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
        with pytest.raises(
            RuleError, match=rf"{'must exist' if name == MANIFEST else 'checksums: got'}.*; export it again"
        ):
            read_program(folder)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": "other"}, "must be a privcirnet-program of version 1: got .* other 1; make it again"),
            ({"version": 2}, "must be a privcirnet-program of version 1: got .* privcirnet-program 2; make it again"),
            ({"version": None}, "must be a privcirnet-program of version 1"),
            ({"version": "one"}, "must be a privcirnet-program of version 1"),
            ({"checksums": None}, "must list its files' checksums"),
            ({"checksums": {}}, "must list its files' checksums"),
            ({"masks": "bounded"}, "must match their checksums: got .*manifest.json; export it again"),
        ],
    )
    def test_a_foreign_manifest(self, folder, change, message):
        data = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(data | change))
        with pytest.raises(RuleError, match=message):
            read_program(folder)

    def test_the_original_is_whole(self, written):
        assert_same_program(read_program(written)[0], network())

    def test_white_space_and_order_do_not_matter(self, folder):
        data = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(dict(reversed(data.items())), indent=4))
        assert_same_program(read_program(folder)[0], network())

    @pytest.mark.parametrize(
        ("file", "tensors", "message"),
        [
            (
                WEIGHTS,
                {"head.rows": None},
                r"tensor head.rows must be integers \(5, 32, 1, 1\): got none; export it again",
            ),
            (WEIGHTS, {"head.rows": np.zeros((5, 32), np.int8)}, r"head.rows must be integers .*: got int8 \(5, 32\)"),
            (WEIGHTS, {"head.bias": np.zeros(10)}, r"head.bias must be integers \(10,\): got float64 \(10,\)"),
            (WEIGHTS, {"head.bias": np.full(10, 2**60)}, "a bias must be under the value bound: got head"),
            (PLAINTEXTS, {"head": np.zeros((1, 5, 16, 2, 1, 1))}, "tensor head must be integers"),
            (PLAINTEXTS, {"head": np.full((1, 5, 16, 2, 1, 1), 2**63, np.uint64)}, "slots must be under t: got head"),
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
        with pytest.raises(
            RuleError, match=r"must be whole safetensors files: got .*weights.safetensors.*; export it again"
        ):
            read_program(folder)

    def test_no_folder(self, tmp_path):
        with pytest.raises(RuleError, match=r"a program's manifest must exist: got .*nowhere.*; export it again"):
            read_program(tmp_path / "nowhere")


def _rewrite(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    facts = json.loads((folder / MANIFEST).read_text())
    facts["checksums"][name] = programs._sha256(folder / name)
    (folder / MANIFEST).write_text(json.dumps(facts))


class TestDamagedCheckpoints:
    def test_missing(self, tmp_path):
        for path in (tmp_path / "nothing", tmp_path):
            with pytest.raises(RuleError, match=r"a checkpoint must exist: got .*; train it with train.py, or give"):
                read_checkpoint(path)

    def test_truncated(self, tmp_path):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        size = (tmp_path / "c").stat().st_size
        for length in (size - 1, size // 2, 8, 0):
            os.truncate(tmp_path / "c", length)
            with pytest.raises(RuleError, match=r"a checkpoint must be a whole safetensors file: got .*; train it"):
                read_checkpoint(tmp_path / "c")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format": None}, "must be a privcirnet-checkpoint of version 1: got .*c: None 1; make it again"),
            ({"format": "privcirnet-program"}, "must be a privcirnet-checkpoint of version 1"),
            ({"version": "2"}, "must be a privcirnet-checkpoint of version 1: got .* 2; make it again"),
            ({"version": "x"}, "must be a privcirnet-checkpoint of version 1"),
            ({"bits": None}, r"a checkpoint must say what it holds: got .*KeyError\('bits'\); train it"),
            ({"bits": "8 8"}, "a checkpoint must say what it holds"),
            ({"bits": "8"}, "a checkpoint must say what it holds"),
            ({"block_sizes": "{"}, "a checkpoint must say what it holds"),
            ({"model": None}, "a checkpoint must say what it holds"),
        ],
    )
    def test_foreign(self, tmp_path, change, message):
        write_checkpoint(tmp_path / "c", CHECKPOINT)
        with safe_open(tmp_path / "c", framework="numpy") as file:
            about = file.metadata() | change
        safetensors.numpy.save_file({}, tmp_path / "c", {key: text for key, text in about.items() if text is not None})
        with pytest.raises(RuleError, match=message):
            read_checkpoint(tmp_path / "c")


PLAN = {"format": "privcirnet-plan", "version": 1, "block_sizes": {"a": 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "a plan must exist: got .*plan.json; make one with search.py"),
        ("{", "a plan must be readable JSON: got .*; make one with search.py"),
        ("\xff", "a plan must be readable JSON"),
        ("[1]", "a plan must be a JSON object"),
        (json.dumps(PLAN | {"format": "x"}), "must be a privcirnet-plan of version 1: got .* x 1"),
        (json.dumps(PLAN | {"version": 3}), "must be a privcirnet-plan of version 1"),
        (json.dumps(PLAN | {"block_sizes": [2]}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": 0}}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": 2.0}}), "a plan must map module names to block sizes"),
        (json.dumps(PLAN | {"block_sizes": {"a": True}}), "a plan must map module names to block sizes"),
    ],
)
def test_unsuitable_plans(tmp_path, text, message):
    if text is not None:
        (tmp_path / "plan.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(RuleError, match=message):
        read_plan(tmp_path / "plan.json")


PROFILE = COUNTED.to_dict()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {key: value for key, value in PROFILE.items() if key != "ring_degree"},
            "a cost profile must be complete: got .*'ring_",
        ),
        (PROFILE | {"ring_degree": "many"}, "a cost profile must be complete: got .*; measure it again with search.py"),
        (PROFILE | {"coefficient_bits": 5}, "a cost profile must be complete"),
        (PROFILE | {"seconds": [1]}, "a cost profile must be complete"),
        (
            PROFILE | {"seconds": {"rotate": 1}},
            "must hold a time for every operation: got add_plain, .*; measure it",
        ),
        (
            PROFILE | {"seconds": PROFILE["seconds"] | {"rotate": -1}},
            "must hold a time .*: got a time that is negative",
        ),
    ],
)
def test_unsuitable_profiles(tmp_path, data, message):
    write_json(tmp_path / "profile.json", data)
    with pytest.raises(RuleError, match=message):
        read_profile(tmp_path / "profile.json")


def test_a_directory_is_no_json(tmp_path):
    with pytest.raises(RuleError, match=r"a plan must be readable JSON: got .*; make one with search.py"):
        read_plan(tmp_path)
    with pytest.raises(RuleError, match=r"a thing must exist: got .*; get one"):
        read_json(tmp_path / "x", "a thing", "get one")


def test_a_copied_folder_is_the_same_program(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    assert_same_program(read_program(tmp_path / "copy")[0], network())
