"""What is installed, what works, what is missing. `privcirnet doctor`.

Versions come from the packages' metadata and cost no import. Three things are tried, because they are compiled for a
kind of machine: torch, the kernels of Numba, and SEAL in TenSEAL.
"""

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from packaging.requirements import Requirement

from privcirnet.cli.console import readable_errors, show
from privcirnet.errors import RuleError
from privcirnet.he.system import threads
from privcirnet.he.system.process import machine_bytes

_FOR_DEVELOPERS = {"docs", "test", "dev"}
_VECTORS = ("avx2", "fma", "avx512f", "avx512dq", "avx512ifma", "avx512vnni", "amx-bf16", "neon", "sve", "sve2")
"""Vector units of interest, by LLVM's names."""


@dataclass(frozen=True)
class Finding:
    """A line of the diagnosis.

    Attributes:
        remedy: remedy for a required part that does not work; else empty.
    """

    name: str
    said: str
    remedy: str = ""


def packages() -> Iterator[Finding]:
    """Yield the version of Python, of the package, and of each package that it needs.

    Raises:
        RuleError: the package is not installed.
    """
    yield Finding("python", f"{platform.python_version()}, {sys.executable}")
    yield Finding("privcirnet", f"{metadata.version('privcirnet')}, {Path(__file__).parents[1]}")
    for need in _needs(""):
        version = _version(need)
        if version is not None and need.specifier.contains(version, prereleases=True):
            yield Finding(need.name, version)
        else:
            yield Finding(need.name, f"{version or 'missing'}, not {need.specifier}", f"pip install '{need}'")


def extras() -> Iterator[Finding]:
    """Yield the optional packages: their versions, or how to get them."""
    for extra in metadata.metadata("privcirnet").get_all("Provides-Extra", []):
        if extra not in _FOR_DEVELOPERS:
            for need in _needs(extra):
                yield Finding(need.name, _version(need) or f"not installed; pip install 'privcirnet[{extra}]'")


def machine() -> Iterator[Finding]:
    """Yield cores, vector units and memory."""
    yield Finding("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding("cores", f"{threads.cores()} of {os.cpu_count()} for this process")
    with suppress(ImportError):  # the trials tell of a Numba that does not work
        from llvmlite import binding

        features = binding.get_host_cpu_features()
        units = ", ".join(name for name in _VECTORS if features.get(name))
        yield Finding("vector units", f"{units or 'none that are known'} ({binding.get_host_cpu_name()})")
    yield Finding("memory", f"{machine_bytes() / 1e9:.1f} GB")


def trials() -> Iterator[Finding]:
    """Yield the trials of torch, the compiled kernels and SEAL, each after it ran."""
    for name, attempt, remedy in _TRIALS:
        try:
            yield Finding(name, attempt())
        except Exception as error:  # whatever a broken library raises: that it is broken is the finding
            yield Finding(name, f"{type(error).__name__}: {error}".splitlines()[0], remedy)


def _torch() -> str:
    import torch

    _correct(torch.equal(torch.eye(2) @ torch.ones(2, 2), torch.ones(2, 2)))
    if torch.cuda.is_available():
        return f"works, with GPU: {torch.cuda.get_device_name()}"
    built = f"built for CUDA {torch.version.cuda}; a smaller build would do" if torch.version.cuda else "built for CPUs"
    return f"works, without a GPU ({built})"


def _kernels() -> str:
    """Multiply X by X^(n - 1), which is -1 modulo X^n + 1."""
    from privcirnet.he.ring.kernels import ntt

    n, p = 1024, 12289
    tables, factors = ntt.tables((p,), n), np.zeros((2, n), np.uint64)
    factors[0, 1] = factors[1, n - 1] = 1
    ntt.forward(factors, tables, 0)
    product = factors[:1] * factors[1:] % np.uint64(p)
    ntt.inverse(product, tables, 0)
    _correct(product[0, 0] == p - 1 and not product[0, 1:].any())
    return f"work; machine code is {_kept(ntt.forward)}"


def _kept(kernel: Any) -> str:
    """Return the place of Numba's cache of a kernel's machine code."""
    folder = kernel.stats.cache_path
    return f"kept in {folder}" if folder else "not kept; set NUMBA_CACHE_DIR to a folder that can be written"


def _seal() -> str:
    from privcirnet.he.bfv.engines import engine_of
    from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, DEFAULT_RING_DEGREE, Parameters

    client = engine_of("tenseal").client(Parameters(DEFAULT_RING_DEGREE, DEFAULT_COEFFICIENT_BITS, 65537))
    return f"works; a ciphertext of {len(client.encrypt(np.ones(8192, np.uint64))):,} bytes"


_TRIALS: tuple[tuple[str, Callable[[], str], str], ...] = (
    ("torch", _torch, "install it again as pytorch.org says for this machine"),
    ("kernels", _kernels, "pip install --force-reinstall numba; set NUMBA_CACHE_DIR to a folder that can be written"),
    ("SEAL", _seal, "pip install --force-reinstall tenseal"),
)


def _correct(product: bool) -> None:
    if not product:
        raise ArithmeticError("a product is wrong")


def _needs(extra: str) -> list[Requirement]:
    """Return the requirements of the package, or only those that one of its extras adds."""
    try:
        every = [Requirement(text) for text in metadata.requires("privcirnet") or []]
    except metadata.PackageNotFoundError:
        rule, remedy = "the doctor reads what an installation says of itself", "pip install . in the checkout"
        raise RuleError(rule, got="no installation of privcirnet", remedy=remedy) from None
    plain = [need for need in every if need.marker is None or need.marker.evaluate({"extra": ""})]
    if not extra:
        return plain
    return [need for need in every if need not in plain and need.marker and need.marker.evaluate({"extra": extra})]


def _version(need: Requirement) -> str | None:
    try:
        return metadata.version(need.name)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    """Show the diagnosis part by part; end with status 2 if something that is required does not work."""
    argparse.ArgumentParser(Path(sys.argv[0]).name, description=__doc__).parse_args()
    with readable_errors():
        findings = [
            *_shown("packages", packages()),
            *_shown("machine", machine()),
            *_shown("trials", trials()),
        ]
        _shown("optional", extras())
        check(findings)


def check(findings: Iterable[Finding]) -> None:
    """Check a diagnosis."""
    broken = [finding for finding in findings if finding.remedy]
    if broken:
        got = ", ".join(f"{finding.name} {finding.said}" for finding in broken)
        raise RuleError("what privcirnet requires must work", got=got, remedy="; ".join(f.remedy for f in broken))


def _shown(title: str, findings: Iterable[Finding]) -> list[Finding]:
    collected = list(findings)
    show(title, {finding.name: finding.said for finding in collected})
    return collected
