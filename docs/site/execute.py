"""Executes the notebooks and keeps their outputs: `make notebooks`, or by name."""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def executed(path: Path) -> nbformat.NotebookNode:
    """A notebook with fresh outputs, from a kernel in an empty folder.

    Args:
        path: Of the notebook.
    """
    notebook = nbformat.read(path, as_version=4)
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # bars of other libraries, which would like widgets
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same every time, as are most outputs
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _kept(cell.outputs)
    return notebook


def _kept(outputs: list) -> list:
    """Without progress that came and went, and streams in one piece."""
    kept: list = []
    for output in outputs:
        if output.output_type == "stream" and kept and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        elif not re.search("^$|<progress", str(output.get("data", {}).get("text/html", "-"))):
            kept.append(output)
    return kept


def main(names: list[str]) -> None:
    """Executes these, or all."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not names or path.stem in names:
            nbformat.write(executed(path), path)
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
