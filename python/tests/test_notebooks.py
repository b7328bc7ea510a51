"""The notebooks run, and their rendered copies are those of the same code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, List

import nbformat
import pytest
from nbclient import NotebookClient

PYTHON = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((PYTHON / "examples").glob("*.ipynb"))


def _code(path: Path) -> List[str]:
    cells = json.loads(path.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, executable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYLOC", executable)
    read: Any = nbformat.read
    notebook = read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert any("image/png" in output.get("data", {}) for output in outputs), "a picture"
    gaps = [float(gap) for gap in re.findall(r"gap (-?[\d.]+) dB", said)]
    if path.stem.startswith("01"):
        # 200 frames reach the bound: the interval of the gap is plus or minus 0.6 dB.
        assert len(gaps) == 1 and abs(gaps[0]) < 1.0
    if path.stem.startswith("02"):
        # The beamformer is worse, ours reaches the bound.
        assert len(gaps) == 2 and gaps[0] > 3.0 and abs(gaps[1]) < 1.0
    if path.stem.startswith("03"):
        located = re.search(r"(\d+) of 100 frames have a fix", said)
        assert located and int(located[1]) > 80


def test_the_first_notebook_is_short() -> None:
    lines = [line for cell in _code(NOTEBOOKS[0]) for line in cell.splitlines() if line.strip()]
    assert len(lines) <= 15, f"{len(lines)} lines of code"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_rendered_copy_has_the_same_code(path: Path) -> None:
    folder = PYTHON.parent / "docs" / "python"
    text = (folder / f"{path.stem}.md").read_text()
    for cell in _code(path):
        assert f"```python\n{cell}\n```" in text, "run python/render"
    pictures = re.findall(r"\]\((\S+\.png)\)", text)
    assert pictures and all((folder / picture).is_file() for picture in pictures)
    assert sum(file.stat().st_size for file in folder.iterdir()) < 400_000


def test_notebooks_are_committed_without_outputs() -> None:
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), path
