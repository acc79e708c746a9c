"""The package as others get it: its door, its metadata, its wheel, its files."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import jitmagic

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"jax", "jaxlib", "numpy", "ipywidgets", "IPython"}


def modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after `code`."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_import_is_light():
    assert not HEAVY & modules_after("import jitmagic")


def test_load_ext_is_light(tmp_path):
    loaded = modules_after(
        f"import os; os.environ['IPYTHONDIR'] = {str(tmp_path)!r}\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from traitlets.config import Config\n"
        "shell = InteractiveShell(config=Config(HistoryManager={'enabled': False}))\n"
        "assert shell.extension_manager.load_extension('jitmagic') is None"
    )
    assert "jitmagic.notebook.magics" in loaded
    assert not (HEAVY - {"IPython"}) & loaded


@pytest.mark.parametrize("name", jitmagic.__all__)
def test_every_name_of_the_door_resolves(name):
    assert getattr(jitmagic, name) is not None
    assert name in dir(jitmagic)


def test_door_keeps_its_functions_when_submodules_are_imported():
    modules_after(
        "import importlib, pkgutil, jitmagic\n"
        "for module in pkgutil.iter_modules(jitmagic.__path__):\n"
        "    importlib.import_module('jitmagic.' + module.name)\n"
        "assert callable(jitmagic.jit) and callable(jitmagic.check) and callable(jitmagic.explain)\n"
        "assert callable(jitmagic.check.options)"
    )


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="jitmagic.*nonsense"):
        _ = jitmagic.nonsense


def test_version_is_that_of_the_metadata():
    try:
        installed = importlib.metadata.version("jitmagic")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("jitmagic is not installed here")
    assert jitmagic.__version__ == installed


def test_version_is_in_the_changelog():
    assert f"## [{jitmagic.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, opened."""
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("wheel")
    build = ["pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(out)]
    run = subprocess.run(
        [sys.executable, "-m", *build], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert run.returncode == 0, run.stderr
    (file,) = out.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_wheel_has_the_whole_package(wheel):
    packed = set(wheel.namelist())
    sources = {p.relative_to(ROOT).as_posix() for p in (ROOT / "jitmagic").rglob("*.py")}
    pages = {p.relative_to(ROOT).as_posix() for p in (ROOT / "jitmagic/rules/pages").iterdir()}
    assert len(pages) > 30 and sources | pages <= packed
    assert "jitmagic/py.typed" in packed


def test_wheel_has_the_in_editor_layer_where_jupyterlab_looks(wheel):
    place = f"jitmagic-{jitmagic.__version__}.data/data/share/jupyter/labextensions/jitmagic/"
    bundle = ROOT / "jitmagic" / "labextension"
    files = {place + p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()}
    assert len(files) > 5 and files <= set(wheel.namelist())


def test_wheel_has_nothing_else(wheel):
    own = (
        "jitmagic/",
        f"jitmagic-{jitmagic.__version__}.dist-info/",
        f"jitmagic-{jitmagic.__version__}.data/",
    )
    assert [name for name in wheel.namelist() if not name.startswith(own)] == []
    assert not any("cache" in name for name in wheel.namelist())


def test_wheel_metadata(wheel):
    prefix = f"jitmagic-{jitmagic.__version__}.dist-info/"
    metadata = wheel.read(prefix + "METADATA").decode()
    assert f"\nVersion: {jitmagic.__version__}\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert prefix + "licenses/LICENSE" in wheel.namelist()
    extras = set(re.findall(r"^Provides-Extra: (\S+)$", metadata, re.M))
    assert {"cuda12", "cuda13", "tpu", "test", "lab", "browser", "dev"} <= extras


def test_no_paths_of_one_machine():
    """What is tracked, or would be, names no directory that only one machine has."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, capture_output=True, text=True, cwd=ROOT, check=True).stdout.splitlines()
    assert "pyproject.toml" in names
    pattern = re.compile(r"(?<![\w.])/(?:work|root|tmp(?!/ipykernel))/")
    found = []
    for name in names:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        # ipykernel's own directory is part of every traceback of a notebook
        found += [f"{name}: {m.group()}" for m in pattern.finditer(text)]
    assert found == []
