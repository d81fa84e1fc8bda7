"""What docstrings of public functions must say, read from the source; `python -m tests.docstrings PATH ...` lists gaps.

Args has what types and names don't say, and nothing that is no argument; the package's public functions list all. What
comes back is said under Returns or Yields or by a summary that begins with the verb. Errors that one of the package's
public functions raises itself stand under Raises; elsewhere the rule in the body says it. What a base class or a protocol of the package says of a method is not said again.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import privcirnet

Function = ast.FunctionDef | ast.AsyncFunctionDef

_IGNORED = {"self", "cls", "_"}
_PROPERTIES = {"property", "cached_property", "overload"}


@cache
def declared() -> dict[str, set[str]]:
    """Methods that protocols and base classes of the package document -> those classes."""
    trees = [ast.parse(path.read_text()) for path in Path(privcirnet.__file__).parent.rglob("*.py")]
    classes = [node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)]
    bases = {_name(base) for node in classes for base in node.bases}
    found: dict[str, set[str]] = {}
    for node in classes:
        if node.name in bases or "Protocol" in map(_name, node.bases):
            for method in node.body:
                if isinstance(method, Function) and ast.get_docstring(method):
                    found.setdefault(method.name, set()).add(node.name)
    return found


def public_functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions, and methods of classes, whose names are public; without methods that are documented elsewhere."""
    for node in tree.body:
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for method in node.body:
                if not isinstance(method, Function) or method.name.startswith("_"):
                    continue
                inherited = node.bases and not ast.get_docstring(method)
                if not inherited and not declared().get(method.name, set()) - {node.name}:
                    yield f"{node.name}.{method.name}", method


def gaps(path: Path) -> list[str]:
    """What is missing in a file, a line for each function."""
    found = []
    for name, function in public_functions(ast.parse(path.read_text())):
        home = privcirnet._HOME.get(name.partition(".")[0], "nowhere")
        missing = _missing(function, home in ".".join(path.with_suffix("").parts))
        if missing:
            found.append(f"{path}:{function.lineno} {name}: {', '.join(missing)}")
    return found


def arguments(function: Function) -> list[str]:
    """Names of the arguments that a caller gives."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, (given.vararg, given.kwarg))]
    return [a.arg for a in every if a.arg not in _IGNORED]


def _missing(function: Function, public: bool) -> list[str]:
    text, names = ast.get_docstring(function) or "", arguments(function)
    if not text:
        return ["a docstring"]
    if not names or {_name(d) for d in function.decorator_list} & _PROPERTIES or text.startswith("See :meth:"):
        return []
    listed = _section(text, "Args")
    entries = " ".join(re.findall(r"^    (\**\w+(?:, \**\w+)*)(?: \(.*?\))?:", listed, re.MULTILINE))
    described = re.findall(r"\w+", entries)
    missing = [f"no argument {name}" for name in described if name not in names]
    if public:
        missing += [f"argument {name}" for name in names if name not in described]
    returns = function.returns
    silent = (
        returns is None or _name(returns) == "NoReturn" or (isinstance(returns, ast.Constant) and returns.value is None)
    )
    if not (silent or re.match(r"(Return|Yield)", text) or _section(text, "Returns") or _section(text, "Yields")):
        missing.append("what it returns")
    stated = _section(text, "Raises")
    return missing + [f"raises {error}" for error in sorted(_raised(function)) if public and error not in stated]


def _section(text: str, title: str) -> str:
    match = re.search(rf"^{title}:\n((?:[ \t]+.*\n?|\n)*)", text, re.MULTILINE)
    return match[1] if match else ""


def _raised(function: Function) -> set[str]:
    """Errors of the project that the body raises by name."""
    raised = [n.exc for n in ast.walk(function) if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call)]
    return {_name(call.func) for call in raised} & {"RuleError", "DoesNotFit"}


def _name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Subscript) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


if __name__ == "__main__":
    for folder in map(Path, sys.argv[1:]):
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            print(*gaps(file), sep="\n", end="\n" if gaps(file) else "")  # noqa: T201
