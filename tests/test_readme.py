"""README and docs: commands are ones that the scripts accept, Python runs, links, paths and error messages exist."""

import ast
import importlib
import re
import shlex
from functools import cache
from itertools import product
from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from privcirnet.cli import SUBCOMMANDS
from privcirnet.cli.settings import quoted
from privcirnet.config import SCHEMAS
from tests.test_configs import FILES, schema_of

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "checkpoints" / "README.md",
    ROOT / "benchmarks" / "peers" / "README.md",
    *(ROOT / "benchmarks" / name for name in ("README.md", "coverage.md", "measured.md")),
    *sorted((ROOT / "papers").glob("*.md")),
]
MOST_README_LINES, MOST_CONTRIBUTING_LINES, TYPICAL_CHANGES = 97, 90, 12
MOST_WORDS_OF_DOCS = 45_000
"""Lower it with the pages, never raise it: experiments belong in papers/ and benchmarks/."""
NO_HYDRA = {"report", "doctor", "completion"}
BESIDE = "papers.", "benchmarks."
"""Where a module begins that is run by -m in a checkout."""
SECTIONS = [
    *(
        "Notation",
        "One idea behind four systems",
        "The least-squares start",
        "Transform lengths",
        "Lanes and counts",
    ),
    *("Sums on shares", "The protocol", "Prepared inference", "Truncation", "Exact floor and sign"),
    *(
        "Exact look-up",
        "Softmax and layer norm",
        "Circuit privacy",
        "Noise",
        "What is always checked",
        "Engine order of work",
    ),
]
"""Of docs/mathematics.md, which docstrings refer to."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """Words of each line that runs a script or a subcommand; continued lines in one, letters for settings spelt out."""
    found, letters = [], {}
    for part in re.split(r"^(```bash\n.*?^```)", page.read_text(), flags=re.DOTALL | re.MULTILINE):
        letters |= dict(re.findall(r"`([A-Z])`\s+is\s+`([^`]+)`", part))
        for line in part.replace("\\\n", " ").splitlines() if part.startswith("```bash") else ():
            if re.match(r"(python|torchrun) .*\w\.py|python -m (papers|benchmarks)\.|privcirnet ", line):
                words = shlex.split(line, comments=True)
                found.append([w for word in words for w in letters.get(word, word).split()])
    return found


COMMANDS = [(name_of(page), command) for page in PAGES for command in commands(page)]


@cache
def arguments_of(script: str) -> set[str]:
    """Options and first positional arguments that a script of benchmarks/ declares, from its source and its modules'."""
    folder = (ROOT / script).parent
    shared = ROOT / "benchmarks" / "common.py", folder / "peer.py"
    sources = [ROOT / script, *(path for path in shared if path.is_file())]
    return set(re.findall(r"add_argument\(\s*\"(--?[\w-]+)\"", "\n".join(source.read_text() for source in sources)))


def jobs(given: list[str]) -> list[list[str]]:
    """The settings of each job of a multirun (-m), or of the only one; what is Hydra's own is left out."""
    if "-m" not in given:
        return [given]
    settings = [word.split("=") for word in given if "=" in word and not word.startswith("hydra")]
    return [
        [f"{key}={value}" for (key, _), value in zip(settings, values, strict=True)]
        for values in product(*(values.split(",") for _, values in settings))
    ]


def test_pages_have_commands_and_programs():
    assert len(COMMANDS) >= 60
    assert blocks(ROOT / "README.md", "python")


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=[f"{p}: {' '.join(c)}" for p, c in COMMANDS])
def test_commands_are_accepted(page, command):
    """A script's settings must exist and be valid, by Hydra and the schema; a benchmark's options must be declared."""
    first = (word for word in command if word.endswith(".py") or word.startswith(BESIDE))
    script = command[1] if command[0] == "privcirnet" else next(first)
    given, name = command[command.index(script) + 1 :], Path(script).stem
    if beside := script if script.startswith(BESIDE) else "":
        path, name = script.replace(".", "/"), script.rpartition(".")[2]
        script = f"{path}.py" if (ROOT / f"{path}.py").is_file() else f"{path}/__main__.py"
    assert script in SUBCOMMANDS or (ROOT / script).is_file(), page
    if "/" in script and name not in FILES:
        options = {word for word in given if word.startswith("--")}
        assert options <= arguments_of(script), f"{page}: {sorted(options - arguments_of(script))}"
    elif name not in NO_HYDRA:
        module = importlib.import_module(f"{beside}.command") if beside else schema_of(name)
        schema = SCHEMAS.get(name)
        given = module.expanded(given) if beside and hasattr(module, "expanded") else given
        for overrides in jobs(quoted(schema, given, sweep=True) if schema else given):
            with hydra.initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
                assert OmegaConf.to_object(hydra.compose(name, overrides=overrides))


@pytest.mark.parametrize("config", FILES.values(), ids=FILES)
def test_commands_of_help_are_accepted(config):
    """They stand in the header, two spaces or more before what they do."""
    lines = re.findall(r"^ {8}((?:python|privcirnet) .*?)(?:  +.*)?$", config.read_text(), flags=re.MULTILINE)
    assert lines or config.stem == "quiet"
    for line in lines:
        test_commands_are_accepted(config.name, line.replace("HOST:PORT", "127.0.0.1:5050").split())


@pytest.mark.filterwarnings("ignore:encrypted logits .* off")  # now and then: networks of two epochs on random images
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_programs_run(page, tmp_path, monkeypatch):
    """In a folder of their own: some write files."""
    (tmp_path / "checkpoints").symlink_to(ROOT / "checkpoints")
    monkeypatch.chdir(tmp_path)
    for program in blocks(page, "python"):
        exec(compile(program, name_of(page), "exec"), {})
    for program in blocks(page, "python no-run"):
        compile(program, name_of(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make (\w+)", page.read_text(), flags=re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"{name_of(page)}: make {target}"


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), f"{name_of(page)}: {target}"
        assert not anchor or anchor in anchors(found), f"{name_of(page)}: {target}"


FIGURE = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?)(?= (?:s|ms|MB|GB|%|times)\b|[, ]*%| (?:to|/) [\d. /to]*(?:%|times|s\b))"
)
"""A number before its unit, also the first ones of a row such as 99.4 / 99.2 %."""


def sources(paragraph: str, page: Path) -> str:
    """Text of the pages of results, and of those that a paragraph links to."""
    linked = [page.parent / target for target in re.findall(r"\]\(([^)\s#]+\.md)", paragraph)]
    results = ("docs/results.md", "docs/prepared.md", "benchmarks/measured.md")
    pages = {*(ROOT / name for name in results), *(file.resolve() for file in linked)}
    return "\n".join(file.read_text() for file in pages)


def stands(number: str, text: str) -> bool:
    """Whether a text has a number, or one that it is rounded from."""
    decimals = len(number.partition(".")[2])
    others = re.findall(r"(?<![\d.])\d+(?:\.\d+)?(?!\.?\d)", text)
    return number in others or (decimals > 0 and any(f"{float(other):.{decimals}f}" == number for other in others))


def strange_figures(text: str, page: Path) -> list[str]:
    """Figures of a text that stand nowhere in the pages they come from."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [
        number
        for paragraph in re.split(r"\n\n|\n(?=\|)", prose)
        for number in FIGURE.findall(paragraph)
        if not stands(number, sources(paragraph, page))
    ]


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "faq.md", ROOT / "docs" / "quickstart.md"], ids=name_of
)
def test_figures_stand_in_the_results(page):
    assert not strange_figures(page.read_text(), page)


def test_a_stale_figure_is_noticed():
    assert strange_figures("A ViT takes 3.61 s and 99.17 / 99.2 %.", ROOT / "README.md") == ["3.61", "99.17"]


def is_there(path: str) -> bool:
    """Whether a file, a folder or a module is there; a module may be written without its ending."""
    return (ROOT / path).exists() or (ROOT / f"{path}.py").is_file()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_exist(page):
    folders = "privcirnet|papers|tests|benchmarks|configs|checkpoints|docs"
    for path in re.findall(rf"`((?:{folders})/\w[\w/-]*\w(?:\.\w+)?)`", page.read_text()):
        assert is_there(path), f"{name_of(page)}: {path}"
    for path in re.findall(r"`((?:he|nn|passes)/[\w/]+\.py)`", page.read_text()):
        assert is_there(f"privcirnet/{path}"), f"{name_of(page)}: {path}"


def test_every_page_can_be_found_from_the_readme():
    linked = {
        (start.parent / target).resolve()
        for start in (ROOT / "README.md", ROOT / "papers" / "README.md")
        for target in re.findall(r"\]\(([^)\s#]+)", start.read_text())
    }
    assert not [name_of(page) for page in PAGES[1:] if page not in linked]


def test_the_readme_is_short():
    assert (ROOT / "README.md").read_text().count("\n") <= MOST_README_LINES


def test_the_docs_are_short():
    words = sum(len(path.read_text().split()) for path in (ROOT / "docs").glob("*.md"))
    assert words <= MOST_WORDS_OF_DOCS, f"docs/*.md have {words} words: say each thing once, in the page it belongs to"


def changes() -> dict[str, list[str]]:
    """Typical changes and the paths to open, from the table of CONTRIBUTING.md."""
    part = (ROOT / "CONTRIBUTING.md").read_text().split("## What to open")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", part, flags=re.MULTILINE)[1:]
    return {change: re.findall(r"`([\w/.:]+)`", where) for change, where in rows}


def says(path: str) -> bool:
    """Whether a file is there, and of ``file:Name`` whether it makes the name, or calls it as a statement, at its top."""
    path, _, name = path.partition(":")
    defined = rf"^(?:class |def )?{name}\b(?:\(|:| =|$)"
    return is_there(path) and (not name or bool(re.search(defined, (ROOT / path).read_text(), re.MULTILINE)))


def test_contributing_says_what_to_open():
    assert (ROOT / "CONTRIBUTING.md").read_text().count("\n") < MOST_CONTRIBUTING_LINES
    assert len(changes()) == TYPICAL_CHANGES
    for change, paths in changes().items():
        assert paths, change
        assert not [path for path in paths if not says(path)], change
    assert not says("privcirnet/he/program/operation.py:Operations")


def test_contributing_names_a_test_that_exists():
    found = re.findall(r"-m pytest (\S+) -k (\w+)", (ROOT / "CONTRIBUTING.md").read_text())
    assert found
    assert all(re.search(rf"def test_\w*{name}", (ROOT / file).read_text()) for file, name in found)


def test_mathematics_has_the_sections_that_docstrings_refer_to():
    text = (ROOT / "docs" / "mathematics.md").read_text()
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == SECTIONS
    for path in (ROOT / "privcirnet").rglob("*.py"):
        for named in re.findall(r"mathematics\.md[,:]?\s+\"([^\"]+)\"", path.read_text()):
            assert " ".join(named.split()) in SECTIONS, f"{path}: {named}"


def templates() -> tuple[list[re.Pattern[str]], str]:
    """Every text of the package as a pattern, what is filled in being anything; and all those without that, in one."""
    found, plain = [], []
    for path in (ROOT / "privcirnet").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [part.value if isinstance(part, ast.Constant) else None for part in parts]
            if any(isinstance(text, str) and len(text) > 6 for text in texts):
                pattern = "".join(re.escape(text) if isinstance(text, str) else ".+" for text in texts)
                found.append(re.compile(pattern))
                plain += [text for text in texts if isinstance(text, str)]
    return found, "\n".join(plain)


def test_documented_errors_are_raised_somewhere():
    rows = re.findall(r"^\| (`.+?) \|", (ROOT / "docs" / "errors.md").read_text(), flags=re.MULTILINE)
    rules = [rule for row in rows for rule in re.findall(r"`([^`]+)`", row)]
    assert len(rules) >= 20
    known, plain = templates()
    unknown = [rule for rule in rules if rule not in plain and not any(p.fullmatch(rule) for p in known)]
    assert not unknown
