"""The package itself: documentation with examples that work, types, stubs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hyloc

PYTHON = Path(__file__).resolve().parents[1]
MODULES = ["", ".errors", ".live", ".locator", ".recording", ".samples", ".scenario", ".scoring", ".simulation"]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_the_documentation(name: str) -> None:
    module = importlib.import_module(f"hyloc{name}")
    options = doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(module, optionflags=options)
    assert result.failed == 0 and (result.attempted > 0 or name == ".errors")


def test_everything_public_is_documented() -> None:
    for name in hyloc.__all__:
        thing = getattr(hyloc, name)
        if name == "__version__":
            continue
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for inner, value in vars(thing).items():
                if not inner.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{inner}"
    said = subprocess.run([sys.executable, "-c", "import hyloc; help(hyloc)"], capture_output=True, text=True, check=True)
    for word in ("read_recording", "Locator", "frames", "bound"):
        assert word in said.stdout


def test_stubs_and_types_are_installed() -> None:
    folder = Path(inspect.getfile(hyloc)).parent
    for name in ("py.typed", "_hyloc.pyi", "scenario.py"):
        assert (folder / name).is_file(), name


def test_the_stub_has_what_the_extension_has() -> None:
    from hyloc import _hyloc

    stub = (PYTHON / "python/hyloc/_hyloc.pyi").read_text()
    for name, thing in vars(_hyloc).items():
        if name.startswith("__"):
            continue
        assert f"def {name}(" in stub or f"class {name}:" in stub, name
        if inspect.isclass(thing):
            for inner in vars(thing):
                assert inner.startswith("__") or f"def {inner}(" in stub, f"{name}.{inner}"


def test_types_are_checked(tmp_path: Path) -> None:
    """`mypy --strict` accepts the package, its tests and the code of the notebooks."""
    for notebook in sorted((PYTHON / "examples").glob("*.ipynb")):
        cells = json.loads(notebook.read_text())["cells"]
        code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        (tmp_path / f"example_{notebook.stem}.py").write_text(code)
    folders = [PYTHON / "python" / "hyloc", PYTHON / "tests", PYTHON / "benchmarks"]
    paths = [str(path) for path in [*folders, *sorted(tmp_path.glob("*.py"))]]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(PYTHON.parent / "target" / "mypy"), *paths]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert said.returncode == 0, said.stdout + said.stderr
