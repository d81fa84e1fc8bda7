"""What MkDocs does beyond docs/: pages from elsewhere, generated pages, and links that work in both places.

A link is written for the repository, where GitHub follows it. The site moves some pages and lacks most files, so links
are rewritten from one tree to the other; one to a file that the site does not have becomes plain text.
"""

import json
import re
from os.path import normpath, relpath
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from rule_errors import PACKAGE, collect, rules_page

ROOT = Path(__file__).parents[2]
_PICTURES = "papers", "benchmarks"
"""Folders whose pages bring pictures, and the figures behind them as CSV, to the site's root."""

MOVED = {
    "README.md": "index.md",
    "checkpoints/README.md": "checkpoints.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/peers/README.md": "peers.md",
    "papers/README.md": "research.md",
    "papers/coefficients/README.md": "coefficients.md",
    "papers/training.md": "trainings.md",
    "papers/results.md": "papers.md",
    "papers/trade_off.md": "trade_off.md",
    **{
        f"papers/{name}.md": f"papers_{name}.md" for name in ("ckks", "encodings", "fusion", "networks", "quantization")
    },
    **{f"benchmarks/{name}.md": f"{name}.md" for name in ("coverage", "measured")},
    **{name: name for name in ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE")},
    **{f"notebooks/{path.name}": f"notebooks/{path.stem}.md" for path in (ROOT / "notebooks").glob("*.ipynb")},
    **{f"notebooks/{path.name}": f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.png")},
    **{f"{folder}/{path.name}": path.name for folder in _PICTURES for path in (ROOT / folder).glob("*.[pc][ns][gv]")},
}
"""Path in the repository -> path in the site. Files of docs/ are at the site's root."""

GENERATED = {"docs/site/rule_errors.py": "rules.md"}
"""Source of a generated page -> its path in the site."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/.

    Args:
        files: of docs/.
        config: of the site.
    """
    for source, target in MOVED.items():
        path = ROOT / source
        content = notebook_page(path.read_text()) if path.suffix == ".ipynb" else path.read_bytes()
        files.append(File.generated(config, target, content=content))
    for name, page in reference_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=page))
    files.append(File.generated(config, "rules.md", content=rules_page(collect())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page, and what only this repository writes at a fence.

    Args:
        markdown: as the repository has it.
        page: that it belongs to.
        config: of the site.
        files: of the site.
    """
    target = page.file.src_uri
    source = next((source for source, moved in MOVED.items() if moved == target), f"docs/{target}")
    markdown = _LINK.sub(lambda link: site_link(link, source, target), markdown)
    return markdown.replace("```python no-run", "```python")


def site_link(link: re.Match[str], source: str, target: str) -> str:
    """Return a link of the repository as one of the site.

    Args:
        link: matched by the pattern of links.
        source: path of its page in the repository.
        target: path of its page in the site.
    """
    picture, text, linked, anchor = link[1], link[2], link[3], link[4] or ""
    if ":" in linked:
        return link[0]
    there = normpath(PurePosixPath(source).parent / linked)
    moved = (MOVED | GENERATED).get(there) or (there.removeprefix("docs/") if there.startswith("docs/") else None)
    return f"{picture}[{text}]({relpath(moved, PurePosixPath(target).parent)}{anchor})" if moved else text


def notebook_page(text: str) -> str:
    """Return a notebook as Markdown, code in fences.

    Args:
        text: of the notebook's file.
    """
    cells = ((cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"])
    return "\n\n".join(f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells)


def reference_pages() -> dict[str, str]:
    """Return a page for each package of the toolkit, by its name, with all of its modules."""
    parts = [path for path in (*PACKAGE.iterdir(), *(PACKAGE / "he").iterdir()) if (path / "__init__.py").is_file()]
    pages = {"privcirnet": "\n".join(["# privcirnet", *map(_directive, sorted(PACKAGE.glob("[!_]*.py")))])}
    for part in sorted(parts):
        if part.name != "he":
            modules = sorted(path for path in part.rglob("*.py") if path.name != "__init__.py" or path.parent == part)
            pages[_dotted(part).removeprefix("privcirnet.")] = "\n".join(
                [f"# {_dotted(part)}", *map(_directive, modules)]
            )
    return pages


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _directive(path: Path) -> str:
    return f"\n::: {_dotted(path)}\n    options: {{heading_level: 2}}"
