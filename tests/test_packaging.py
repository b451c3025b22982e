"""What is installed is one package from four folders, quick to import, and says its names in full."""

import ast
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAPPED = ("kernels", "operators", "topologies")
FOLDERS = ("stream_tpp", *MAPPED)


def run(*command: str, **options: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout  # type: ignore[call-overload, no-any-return]


def modules(folder: str) -> set[str]:
    """The files of a code folder under the names that they install as."""
    prefix = Path("stream_tpp") if folder in MAPPED else Path()
    return {str(prefix / path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")}


def test_importing_the_package_brings_in_neither_torch_nor_faust() -> None:
    check = "import sys, stream_tpp; print([name for name in ('torch', 'faust', 'aiokafka') if name in sys.modules])"
    assert run(sys.executable, "-c", check) == "[]\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy, so that what an earlier build left behind has no part in it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(built))
    run(sys.executable, "-m", "pip", "wheel", *options, str(source))
    return next(built.glob("*.whl"))


def test_the_wheel_holds_every_module_of_the_four_folders_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
    assert held == set().union(*(modules(folder) for folder in FOLDERS))
    assert all(f"stream_tpp/{folder}/__init__.py" in held for folder in MAPPED)


def test_the_wheel_holds_types_licence_and_every_shipped_model(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    shipped = {str(path.relative_to(ROOT)) for path in (ROOT / "stream_tpp" / "pretrained").rglob("*") if path.is_file()}
    assert shipped | {"stream_tpp/py.typed"} <= held
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in held)


def test_the_wheel_imports_where_the_source_is_not(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    imports = (
        "import stream_tpp.kernels, stream_tpp.operators, stream_tpp.topologies, stream_tpp.cli.main as m; print(m.__file__)"
    )
    shown = run(sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {imports}", cwd=str(tmp_path))
    assert shown.startswith(str(tmp_path))


def test_no_module_imports_the_mapped_folders_by_their_bare_names() -> None:
    for folder in (*FOLDERS, "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not bare_imports(path) & set(MAPPED), path


def bare_imports(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    sources = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.partition(".")[0] for name in plain | sources}
