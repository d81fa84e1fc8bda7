"""Run the notebooks and keep what they print and draw: python notebooks/refresh.py [NAME ...], with nbclient installed.

They run in the order in which they build on each other, in a folder that is thrown away.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
ORDER = (
    "quickstart",
    "two_parties",
    "search",
    "sensitivity",
    "own_network",
    "trained_network",
    "post_training",
    "imagenet",
    "signals",
)
KEPT = ("image/png", "text/plain")


def main() -> None:
    """Refresh the notebooks that the command line names; all of them if it names none."""
    os.environ["PYTHONWARNINGS"] = "ignore"
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for name in ORDER:
            path = FOLDER / f"{name}.ipynb"
            notebook = nbformat.read(path, as_version=4)
            if name == "sensitivity":
                subprocess.run([sys.executable, "-m", "privcirnet", "train"], check=True)
            NotebookClient(notebook, timeout=1200, kernel_name="python3").execute()
            for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
                cell.outputs = [kept(output) for output in cell.outputs if is_read(output)]
                cell.execution_count, cell.metadata = number + 1, {}
            notebook.metadata = {key: notebook.metadata[key] for key in ("kernelspec", "language_info")}
            notebook.metadata.language_info = {"name": "python"}
            if name in (sys.argv[1:] or ORDER):
                nbformat.write(notebook, path)
            print(name)


def is_read(output: nbformat.NotebookNode) -> bool:
    """Return whether an output is one for readers: no progress bar, which leaves an empty text."""
    return output.get("name") != "stderr" and output.get("data", {}).get("text/plain") != ""


def kept(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Return an output without what readers do not see."""
    if "data" in output:
        data = {kind: value for kind, value in output["data"].items() if kind in KEPT}
        return nbformat.v4.new_output("display_data", data)
    return output


if __name__ == "__main__":
    main()
