"""The import law and the habits that keep the house in order, read from the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "privcirnet"
FILES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = {"train", "search", "export", "infer", "bench", "report", "serve"}

ONLY_USER = {
    "tenseal": {"he/tenseal.py"},
    "pulp": {"search/solve.py"},
    "zstandard": {"he/sealfile.py"},
    "sklearn": {"data/digits.py"},
    "hydra": {"cli.py"},
    "matplotlib": {"plots.py"},
    "tensorboard": {"training/record.py"},
    "threadpoolctl": {"he/threads.py"},
    "numba": {"he/kernels/jit.py"},
}
"""Library -> the only files that may import it."""

LAYERS = {
    "functional": {"errors", "functional"},
    "nn": {"errors", "functional", "nn"},
    "distributed": {"errors", "nn", "distributed"},
    "he": {"errors", "he"},
    "report": {"errors", "report"},
    "artifact": {"errors", "artifact", "he"},
    "config": {"errors", "config", "he"},
    "data": {"errors", "data"},
    "models": {"errors", "nn", "models"},
    "witness": {"errors", "he", "witness"},
    "inference": {"errors", "he", "inference"},
    "evaluation": {"errors", "he", "inference", "witness", "evaluation"},
    "comparison": {"cli", "comparison", "config", "errors", "he", "plots"},
    "plots": {"artifact", "errors", "plots"},
    "lower": {"errors", "he", "nn", "lower"},
    "exporting": {"cli", "config", "data", "errors", "he", "lower", "nn", "exporting"},
    "searching": {
        *("artifact", "cli", "config", "data", "distributed", "he", "plots", "search", "searching", "training"),
    },
    "search": {"distributed", "errors", "functional", "he", "lower", "nn", "search"},
    "training": {
        *("artifact", "config", "data", "distributed", "errors", "functional", "models", "nn", "plots", "search"),
        "training",
    },
    "cli": {"artifact", "config", "errors", "he", "inference", "cli"},
    "errors": set(),
    "__init__": {"artifact", "errors", "evaluation", "functional", "he", "lower", "nn", "search"},
}
"""Part of the package -> the parts that it may import."""

NO_TORCH = {
    "he",
    "report",
    "artifact",
    "config",
    "errors",
    "evaluation",
    "inference",
    "witness",
    "comparison",
    "plots",
    "cli",
}
"""Parts that a client without torch can import."""


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


def test_there_is_a_package_to_look_at():
    assert len(FILES) > 40
    assert {part_of(path) for path in FILES} == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_parts_import_only_what_they_may(path):
    inside = {m.split(".")[1] for m in imports(path) if m.startswith("privcirnet.")}
    parts = {part_of(p) for p in FILES}
    assert inside & parts <= LAYERS[part_of(path)]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_libraries_have_one_user(path):
    roots = {module.split(".")[0] for module in imports(path)}
    for library, users in ONLY_USER.items():
        assert library not in roots or name_of(path) in users
    if part_of(path) in NO_TORCH:
        assert not roots & {"torch", "torchvision", "timm"}
    if part_of(path) == "functional":
        assert roots <= {"torch", "math", "collections", "privcirnet", "typing", "functools"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_imports_the_scripts(path):
    assert not imports(path) & SCRIPTS


def test_he_works_where_there_is_no_torch(subprocess_python):
    program = (
        "import sys; sys.modules['torch'] = sys.modules['timm'] = None\n"
        "from privcirnet.he.protocol import client, server, session\n"
        "from privcirnet.he import calibrate, manifest, engine\n"
        "import privcirnet, privcirnet.artifact, privcirnet.pipeline.evaluation\n"
        "print(privcirnet.Client.__name__)"
    )
    assert subprocess_python(program) == "Client"


def test_public_names_are_few_and_exist():
    import privcirnet

    assert len(privcirnet.__all__) <= 25
    assert all(getattr(privcirnet, name) is not None for name in privcirnet.__all__)
    assert sorted(privcirnet.__all__) == sorted(privcirnet._HOME)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = privcirnet.nothing


@pytest.mark.parametrize("path", [*FILES, *(ROOT / f"{s}.py" for s in sorted(SCRIPTS))], ids=lambda p: p.name)
def test_files_and_functions_are_small(path):
    text = path.read_text()
    assert text.count("\n") <= (100 if path.parent == ROOT else 320)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno <= 60, f"{node.name}: {node.end_lineno - node.lineno} lines"
        assert not (isinstance(node, ast.ExceptHandler) and node.type is None), "bare except"


def test_the_library_does_not_print():
    for path in FILES:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        printing = [n for n in calls if isinstance(n.func, ast.Name) and n.func.id == "print"]
        assert not printing or part_of(path) == "cli", name_of(path)
