"""AES inside kernels against OpenSSL's, each way in which it is computed."""

import os
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.mpc.kernels import aes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import features, jit
from tests.conftest import ROOT
from tests.he.mpc.transfers import hashes

BLOCKS = 3 * aes.GROUP


@jit
def encrypted(cipher: aes.Aes, blocks: Residues, count: int) -> int:
    aes.encrypt(cipher, blocks, count)
    return aes.room(cipher)


@pytest.mark.parametrize("count", [1, 16, 33, BLOCKS])
def test_blocks_are_encrypted_as_by_openssl(aes_kind: type[aes.Aes], count: int) -> None:
    key, words = os.urandom(16), np.frombuffer(os.urandom(16 * BLOCKS), np.uint64).copy()
    expected = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(words[: 2 * count].tobytes())
    cipher = aes.cipher(key)
    assert isinstance(cipher, aes_kind)
    assert encrypted(cipher, words, count) % (5 * aes.GROUP) == 0
    assert words[: 2 * count].tobytes() == expected


def test_the_round_keys_are_those_of_the_standard() -> None:
    """FIPS 197, appendix A.1: the last of the example."""
    keys = aes._round_keys(bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c"))
    assert keys[-16:].hex() == "d014f9a8c9ee2589e13f0cc8b6630ca6"


def test_hashes_in_every_form_are_those_of_the_definition(aes_kind: type[aes.Aes]) -> None:
    """More rows than a kernel has room for, and both keys of a sender."""
    from privcirnet.he.mpc.ot.ciphers import TweakableHash

    count, m, hashed = 5 * 1088, (1 << 61) - 1, TweakableHash(b"s")
    rows, shifts = (np.frombuffer(os.urandom(16 * n), np.uint64).reshape(-1, 2).copy() for n in (count, 2))
    shifts[0] = 0
    expected = np.stack([hashes(rows ^ shift, b"s", 7) for shift in shifts])
    assert (hashed(rows, 7, shifts) == expected).all()
    for bits in (9, 20):
        planes = np.unpackbits(hashed.planes(rows, 7, shifts, bits).view(np.uint8), axis=2, bitorder="little")
        assert all((planes[:, j] == expected[..., 0] >> np.uint64(j) & np.uint64(1)).all() for j in range(bits))
    numbers = [[(int(high) << 64 | int(low)) % m for low, high in key] for key in expected]
    assert (hashed.residues(rows, 7, shifts, m) == np.array(numbers, np.uint64)).all()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_call_of_openssl_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ctypes swallows must not pass blocks on as they were."""
    monkeypatch.setattr(aes, "_encryptor", None)
    cipher, words = aes.cipher(bytes(16), aes.OpenSsl), np.zeros(2 * aes.GROUP, np.uint64)
    with pytest.raises(RuntimeError, match="interrupted"):
        encrypted(cipher, words, 1)


@pytest.mark.slow
def test_a_host_without_the_instructions_does_not_run_code_that_has_them(tmp_path) -> None:
    """Both keep machine code in the same folder; LLVM's own check would end the process."""
    program = "from privcirnet.he.mpc.kernels import aes; from privcirnet.he.mpc.ot.ciphers import TweakableHash\n"
    program += "import numpy; zeros = numpy.zeros((1, 2), numpy.uint64); h = TweakableHash(b's')\n"
    program += "from privcirnet.he.mpc.kernels.hashing import hashes_into as kernel\n"
    program += (
        "print(h(zeros, 0, zeros).tobytes().hex(), aes.kinds()[0].__name__, sum(kernel.stats.cache_hits.values()))"
    )

    def said(**environment: str) -> list[str]:
        others = {"NUMBA_CACHE_DIR": str(tmp_path), **environment}
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | others,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    first, kind, hits = said()
    assert (first, kind, hits) == (
        hashes(np.zeros((1, 2), np.uint64), b"s", 0).tobytes().hex(),
        aes.kinds()[0].__name__,
        "0",
    )
    assert said(NUMBA_CPU_FEATURES="") == [first, "OpenSsl", "0"]
    assert said() == [first, kind, "1"]
    assert said(NUMBA_CPU_FEATURES=",".join(f"+{name}" for name in features() - {"vaes"}))[1] in {"AesNi", "OpenSsl"}
