"""Every error that users are meant to read, from the sources: rule, remedy, and the module that raises it.

Nothing is imported. A text is what a string literal says, with … for what is filled in. Names are followed to the
assignments of their function or module, and arguments of a function that raises (as ``check`` does) to its callers.
"""

import ast
from collections import ChainMap, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[2] / "privcirnet"
BLANK = "…"
SUBJECTS = {
    "Settings": ("__main__", "config", "cli", "api"),
    "Images": ("data",),
    "Networks": ("models", "passes", "nn"),
    "Training": ("train", "distributed"),
    "Block sizes": ("blocksize_search",),
    "From a network to an encrypted program": ("passes.lower", "he.program"),
    "Plans, encodings and encryption parameters": (
        "he.planning",
        "he.layers",
        "he.ckks",
        "he.bfv",
        "he.rlwe",
        "he.ring",
        "he.system",
    ),
    "Client and server": ("he.protocol", "he.mpc", "service"),
    "Files": ("artifact",),
    "Benchmarks, comparisons and reports": ("he.measure", "runs", "report"),
    "The page of infer.py": ("page",),
}
"""Heading of the page of errors -> packages whose errors stand there."""

_DEEPEST = 4
"""Functions between the one that knows a text and the one that raises it, at most."""

_UNKNOWN = ast.Constant(None)
"""The value of an argument, which hides what else has its name."""

Names = ChainMap[str, ast.expr]
"""The innermost assignments first. Nothing is copied: a package has thousands."""


class RaisedRule(NamedTuple):
    """An error as its source says it.

    Attributes:
        module: dotted name.
        rule: that was broken.
        remedy: what the user can do.
    """

    module: str
    rule: str
    remedy: str


class _Call(NamedTuple):
    """A call and what is known where it stands.

    Attributes:
        node: the call.
        module: dotted name.
        names: assignments of the module and of the function around it.
        function: around it; None at module level.
    """

    node: ast.Call
    module: str
    names: Names
    function: ast.FunctionDef | None


def collect(package: Path = PACKAGE) -> list[RaisedRule]:
    """Return every rule of a package with its remedies, sorted.

    Args:
        package: folder with its modules.
    """
    trees = {path: ast.parse(path.read_text()) for path in package.rglob("*.py")}
    constants = {name: value for tree in trees.values() for name, value in _assigned(tree.body)}
    calls: dict[str, list[_Call]] = defaultdict(list)
    for path, tree in trees.items():
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
        for call in _calls(tree, module, ChainMap(dict(_assigned(tree.body)), constants), None):
            calls[_called(call.node)].append(call)
    raised = [call for name in sorted(_error_classes(trees.values())) for call in calls[name]]
    found = {
        RaisedRule(call.module, rule, remedy)
        for call in raised
        for rule, remedy in _texts(_given(call.node, ["rule", "got", "remedy"]), ("rule", "remedy"), call, calls)
    }
    return sorted(rule for rule in found if any(letter.isalpha() for letter in rule.rule))


def rules_page(rules: list[RaisedRule]) -> str:
    """Return the page of all errors, by subject.

    Args:
        rules: of the package.

    Raises:
        KeyError: a module belongs to no subject.
    """
    subject_of = {f"privcirnet.{part}": subject for subject, parts in SUBJECTS.items() for part in parts}

    def subject(rule: RaisedRule) -> str:
        parents = [rule.module.rsplit(".", cut)[0] for cut in range(rule.module.count("."))]
        return next(subject_of[name] for name in parents if name in subject_of)

    order = list(SUBJECTS)
    ranked = sorted(rules, key=lambda rule: (order.index(subject(rule)), rule.rule, rule.remedy))
    lines = [
        "# All errors",
        f"Every rule of this version, {len({rule.rule for rule in rules})} of them, from its sources. … stands for",
        "what is known only when it happens. [Errors](errors.md) explains the common ones.",
    ]
    for heading, found in groupby(ranked, subject):
        lines += ["", f"## {heading}", "", "| the line says | what to do |", "|---|---|"]
        lines += dict.fromkeys(f"| `{rule.rule}` | {rule.remedy} |".replace("\n", " ") for rule in found)
    return "\n".join(lines)


def _texts(
    given: Mapping[str, ast.expr],
    wanted: Sequence[str],
    call: _Call,
    calls: Mapping[str, list[_Call]],
    depth: int = _DEEPEST,
) -> Iterator[tuple[str, ...]]:
    """Yield the texts of some arguments of a call, once for each caller that decides them."""
    parameters = [a.arg for a in (*call.function.args.args, *call.function.args.kwonlyargs)] if call.function else []
    free = [name for name in parameters if any(_needs(given.get(part), name, call.names) for part in wanted)]
    callers = calls[call.function.name] if call.function and free and depth else []
    for caller in callers:
        bound = _given(caller.node, [name for name in parameters if name != "self"])
        for values in dict.fromkeys(_texts(bound, free, caller, calls, depth - 1)):
            known = (ast.Constant(text or BLANK) for text in values)
            names = call.names.new_child(dict[str, ast.expr](zip(free, known, strict=True)))
            yield tuple(_text(given.get(part), names) for part in wanted)
    if not callers:
        yield tuple(_text(given.get(part), call.names) for part in wanted)


def _text(node: ast.expr | None, names: Names, followed: frozenset[str] = frozenset()) -> str:
    """What an expression says, with BLANK for what is only known when it runs; a name is followed once."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part, names, followed) for part in parts)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _text(value, names, followed)
        case ast.IfExp(body=body, orelse=other):
            return " / ".join(dict.fromkeys(text for part in (body, other) if (text := _text(part, names, followed))))
        case ast.Name() | ast.Attribute() if (name := ast.unparse(node)) in names and name not in followed:
            return _text(names[name], names, followed | {name})
    return BLANK


def _needs(node: ast.expr | None, name: str, names: Names, followed: frozenset[str] = frozenset()) -> bool:
    """Whether an expression's text depends on a name, directly or through assignments."""
    if node is None:
        return False
    inner = _names_in(node)
    due = [names[other] for other in inner - followed if other in names]
    return name in inner or any(_needs(value, name, names, followed | inner) for value in due)


@cache
def _names_in(node: ast.expr) -> frozenset[str]:
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name))


def _calls(node: ast.AST, module: str, names: Names, function: ast.FunctionDef | None) -> Iterator[_Call]:
    if isinstance(node, ast.ClassDef):
        names = names.new_child({f"self.{name}": value for name, value in _assigned(node.body)})
    if isinstance(node, ast.FunctionDef):
        arguments = dict.fromkeys((a.arg for a in (*node.args.args, *node.args.kwonlyargs)), _UNKNOWN)
        names, function = names.new_child({**arguments, **dict(_assigned(ast.walk(node)))}), node
    if isinstance(node, ast.Call):
        yield _Call(node, module, names, function)
    for child in ast.iter_child_nodes(node):
        yield from _calls(child, module, names, function)


def _assigned(nodes: Sequence[ast.stmt] | Iterator[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of assignments, tuples in parts."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        for target in targets:
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for name, part in pairs:
                if isinstance(name, ast.Name) and isinstance(part, ast.expr):
                    yield name.id, part


def _given(call: ast.Call, parameters: Sequence[str]) -> dict[str, ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return dict(zip(parameters, call.args, strict=False)) | named


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _error_classes(trees: Iterable[ast.Module]) -> set[str]:
    """RuleError and the classes that inherit from it."""
    bases = {
        node.name: {getattr(base, "id", "") for base in node.bases}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    found, before = {"RuleError"}, set[str]()
    while found != before:
        before = found
        found = found | {name for name, parents in bases.items() if parents & found}
    return found


if __name__ == "__main__":
    print(rules_page(collect()))  # noqa: T201
