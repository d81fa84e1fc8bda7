"""The import law and the habits that keep the house in order, read from the source."""

import ast
import re
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
PACKAGE, PAPERS = ROOT / "privcirnet", ROOT / "papers"
FILES, RESEARCH = sorted(PACKAGE.rglob("*.py")), sorted(PAPERS.rglob("*.py"))
BENCHMARKS = sorted(path for name in ("bench", "load") for path in (ROOT / "benchmarks" / name).rglob("*.py"))
HE = [path for path in FILES if path.is_relative_to(PACKAGE / "he")]
SCRIPTS = {"train", "search", "export", "infer", "bench", "report", "reproduce", "serve", "ladder"}
MAX_LINES, MAX_SCRIPT_LINES, MAX_BODY_LINES = 600, 10, 60

ONLY_USER = {
    "tenseal": {"he/bfv/seal.py"},
    "pulp": {"blocksize_search/solve.py"},
    "zstandard": {"he/bfv/seal.py"},
    "sklearn": {"data/loading.py"},
    "timm": {
        "models/pretrained.py",
        "models/registry.py",
        "train/architectures.py",
        "train/augmentation.py",
        "train/muon.py",
        "train/optimization.py",
    },
    "torchvision": {"data/loading.py", "data/rand_augment.py", "train/architectures.py"},
    "pyarrow": {"artifact/results.py"},
    "hydra": {"cli/settings.py"},
    "argcomplete": {"cli/completion.py"},
    "matplotlib": {"report/plots.py"},
    "tensorboard": {"train/record.py"},
    "threadpoolctl": {"he/system/threads.py"},
    "starlette": {"page/server.py"},
    "uvicorn": {"page/server.py"},
    "nacl": {"he/mpc/ot/base.py"},
    "numba": {
        "he/mpc/kernels/aes.py",
        "he/mpc/kernels/sparse_code.py",
        "he/system/jit.py",
        "nn/functional/kernels/squares.py",
    },
    "google": {"service/messages.py"},
    "grpc_health": {"service/server.py"},
    "cryptography": {
        "he/mpc/kernels/aes.py",
        "he/mpc/ot/ciphers.py",
        "he/program/signature.py",
        "he/ring/sampling.py",
        "service/certificates.py",
    },
    "ray": {"service/prepared_workers.py"},
    "prometheus_client": {"service/metrics.py"},
    "redis": {"service/shared/link.py"},
    "fsspec": {"data/pictures.py", "service/shared/keys.py"},
}
"""Library -> the only files that may import it."""

RANKS = (
    {"errors"},
    {"he"},
    {"nn", "artifact", "data"},
    {"passes", "models", "distributed", "report", "service"},
    {"blocksize_search", "config"},
    {"train"},
    {"runs"},
    {"page"},
    {"cli"},
    {"api", "__main__"},
    {"__init__"},
)
"""Parts of the package from the bottom up. A part may import parts of lower ranks; those of one rank do not know each other."""

ROOMS = (
    {"system"},
    {"ring"},
    {"rlwe"},
    {"bfv"},
    {"layers"},
    {"program"},
    {"mpc"},
    {"planning"},
    {"ckks"},
    {"protocol"},
    {"measure"},
    {"__init__"},
)
"""The same for the rooms of ``he/``."""

NO_TORCH = {"he", "report", "artifact", "config", "errors", "runs", "cli", "page", "service", "__main__"}
"""Parts that a client without torch can import, but for the files of :data:`WITH_TORCH`."""

WITH_TORCH = {
    *("cli/doctor.py", "runs/compiled.py", "runs/export.py"),
    *("runs/check.py", "runs/competition.py", "runs/search.py", "cli/train.py", "cli/infer.py"),
}

GONE = ("client-aided", "client_aided", "ClientAided", "answer_bits", "largest_logit", '"rounded"', "answer=rounded")
GONE += ("hiding_bits", '"bounded"', "masks=bounded", "runs_directly", "ReplyStock", "make_ahead", "mask_bound")
GONE += ("blake2xb", "load_seal", "he.family", "CoefficientLayer", "COEFFICIENT_ENCODINGS", "average_with")
GONE += ("recipe.patches", "FewerPatches", "he.guard_bits", "he.least_guard_bits")
GONE += ("mode=leveled", "leveled.", "LeveledConfig", "leveled_client", "read_leveled", "lower_exact")
"""Settings and modes that were taken away, as they stood in source and in settings."""


def imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def graph() -> dict[str, set[str]]:
    """Every module of the package, of research and of benchmarks -> the modules among them that it imports."""
    files = [*FILES, *RESEARCH, *BENCHMARKS]
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in files}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        imported = imports(path) & set(modules)
        packages = {m for m in imported if any(other.startswith(f"{m}.") for other in imported)}
        found[name] = imported - packages - {name, "privcirnet"}
    return found


def rank_of(name: str, ranks: tuple[set[str], ...]) -> tuple[int, str] | None:
    """The rank of a file or module, given by its path, and the part that it belongs to; None of the folder above all."""
    return next(((i, x) for i, parts in enumerate(ranks) for x in parts if f"{name}/".startswith(f"{x}/")), None)


def upward(path: Path, folder: Path, ranks: tuple[set[str], ...]) -> list[str]:
    """Imports of a file that are neither of its own part nor of a lower rank."""
    own, prefix = (
        rank_of(str(path.relative_to(folder).with_suffix("")), ranks),
        ".".join(folder.relative_to(ROOT).parts),
    )
    assert own, f"{path} has no rank"
    inside = [m.removeprefix(f"{prefix}.").replace(".", "/") for m in imports(path) if m.startswith(f"{prefix}.")]
    found = [(m, rank_of(m, ranks)) for m in inside]
    return [f"{path}: {m}" for m, other in found if other and other[0] >= own[0] and other[1] != own[1]]


def test_there_is_a_package_to_look_at():
    assert len(FILES) > 40
    parts = {str(path.relative_to(PACKAGE).with_suffix("")) for path in FILES}
    assert {rank_of(part, RANKS)[1] for part in parts} == set().union(*RANKS)
    rooms = {str(path.relative_to(PACKAGE / "he").with_suffix("")) for path in HE}
    assert {rank_of(room, ROOMS)[1] for room in rooms} == set().union(*ROOMS)


def test_imports_point_down():
    wrong = [arrow for path in FILES for arrow in upward(path, PACKAGE, RANKS)]
    wrong += [arrow for path in HE for arrow in upward(path, PACKAGE / "he", ROOMS)]
    assert not wrong


def test_no_module_imports_itself_in_a_circle():
    after = graph()
    while leaves := {name for name, imported in after.items() if not imported & set(after)}:
        after = {name: imported for name, imported in after.items() if name not in leaves}
    assert not after, f"in or above a circle: {sorted(after)}"


def test_libraries_have_one_user():
    wrong = []
    for path in FILES:
        roots = {module.split(".")[0] for module in imports(path)}
        wrong += [(name_of(path), x) for x, users in ONLY_USER.items() if x in roots and name_of(path) not in users]
        if part_of(path) in NO_TORCH and name_of(path) not in WITH_TORCH:
            wrong += [(name_of(path), library) for library in roots & {"torch", "torchvision", "timm"}]
        if path.parent == PACKAGE / "nn" / "functional":
            wrong += [(name_of(path), x) for x in roots - sys.stdlib_module_names - {"torch", "privcirnet"}]
    assert not wrong


def test_nothing_imports_the_scripts():
    assert not [str(path) for path in [*FILES, *RESEARCH, *BENCHMARKS] if imports(path) & SCRIPTS]


def test_the_package_does_not_know_research_and_benchmarks():
    """papers imports benchmarks, and both the package, never the other way: a wheel has neither."""
    assert len(RESEARCH) > 30
    assert len(BENCHMARKS) > 15
    beside = {"papers", "benchmarks", "tests"}
    assert not [name_of(path) for path in FILES if {module.split(".")[0] for module in imports(path)} & beside]
    assert not [str(path) for path in RESEARCH if {module.split(".")[0] for module in imports(path)} & {"tests"}]
    above = {"papers", "tests"}
    assert not [str(path) for path in BENCHMARKS if {module.split(".")[0] for module in imports(path)} & above]


def test_nobody_asks_of_which_kind_a_program_is():
    """What differs between kinds is in :class:`privcirnet.he.program.program.PublicDescription`."""
    kinds = re.compile(r"isinstance\(.*\b(Program|Description|CkksDescription|LeveledProgram|CkksProgram)\b")
    files = [path for path in FILES if part_of(path) in {"runs", "page", "cli", "report", "service"}]
    assert not [name_of(path) for path in files if kinds.search(path.read_text())]


def test_what_was_taken_away_is_not_there():
    files = [*FILES, *(path for suffix in ("html", "js", "css") for path in PACKAGE.rglob(f"*.{suffix}"))]
    files += (ROOT / "configs").rglob("*.yaml")
    texts = {path: path.read_text() for path in files}
    refusals = PACKAGE / "cli" / "settings.py"
    texts[refusals] = re.sub(r"^OLD = \{.*?^\}", "", texts[refusals], flags=re.MULTILINE | re.DOTALL)
    assert not [(str(path), word) for path, text in texts.items() for word in GONE if word in text]


def test_he_works_where_there_is_no_torch(subprocess_python):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['timm'] = None\n"
        "from privcirnet.he.protocol.parties import client, server, session\n"
        "from privcirnet.he.measure import calibrate\n"
        "from privcirnet.he.program import manifest\n"
        "import privcirnet, privcirnet.artifact, privcirnet.runs.evaluation\n"
        "print(privcirnet.Client.__name__)"
    )
    assert subprocess_python(program) == "Client"


def test_public_names_are_few_and_exist():
    import privcirnet

    assert len(privcirnet.__all__) <= 30
    assert all(getattr(privcirnet, name) is not None for name in privcirnet.__all__)
    assert sorted(privcirnet.__all__) == sorted(privcirnet._HOME)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = privcirnet.nothing


def test_files_and_functions_are_small():
    wrong = []
    for path in [*FILES, *RESEARCH, *BENCHMARKS, *(ROOT / f"{script}.py" for script in sorted(SCRIPTS))]:
        text = path.read_text()
        if text.count("\n") > (MAX_SCRIPT_LINES if path.parent == ROOT else MAX_LINES):
            wrong.append(f"{path}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > MAX_BODY_LINES:
                wrong.append(f"{path}: {node.name} has {body_lines(node)} lines")
            if isinstance(node, ast.ExceptHandler) and node.type is None:
                wrong.append(f"{path}: bare except")
    assert not wrong


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return function.end_lineno - body[0].lineno + 1 if body else 0


def test_asserts_only_narrow_types():
    """python -O removes them: what guards an invariant raises."""
    asserts = [
        (p, n)
        for p in [*FILES, *RESEARCH, *BENCHMARKS]
        for n in ast.walk(ast.parse(p.read_text()))
        if isinstance(n, ast.Assert)
    ]
    narrows = re.compile(r"isinstance\(.*\)|[^ ]+ is not None")
    wrong = [(name_of(p), n.lineno) for p, n in asserts if n.msg or not narrows.fullmatch(ast.unparse(n.test))]
    assert not wrong


def test_the_library_does_not_print_or_drive_the_terminal():
    wrong = []
    for path in FILES:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        printing = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]
        terminal = "rich" in {m.split(".")[0] for m in imports(path)} and name_of(path) != "report/terminal.py"
        if (printing or terminal) and name_of(path) != "cli/console.py":
            wrong.append(name_of(path))
    assert not wrong
