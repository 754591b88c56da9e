"""What holds for the repository as a whole: sizes, layers, self-description, and nothing private in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "inbounds"
MODULES = sorted(PACKAGE.rglob("*.py"))
PINS = sorted((ROOT / "requirements").glob("*.txt"))
LONGER = {"learners/aram.py": 550}
"""Modules that hold one idea and are longer than others may be: ARAM, settings to losses."""
NEVER_NEEDS_JAX = ("constraints", "deploy", "policies", "storage")

STRICT = [sys.executable, "-W", "error", "-W", "ignore:Error reading persistent compilation cache entry"]
"""Warnings are errors, but for entries of the shared cache that another worker has half written: JAX compiles again."""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def tracked_texts() -> list[tuple[str, str]]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    texts = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        try:
            texts.append((name, (ROOT / name).read_text()))
        except (UnicodeDecodeError, FileNotFoundError):
            continue  # binary, or removed in the working tree
    return texts


def module_level_imports(tree: ast.Module) -> set[str]:
    """Return the top-level packages that are imported with the module, not later inside its functions."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.split(".")[0])
        waiting.extend(ast.iter_child_nodes(node))
    return found


def test_a_module_ends_before_its_reader_does() -> None:
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in MODULES}
    too_long = {name: length for name, length in lengths.items() if length > LONGER.get(name, 400)}
    assert lengths and not too_long, f"split them, one idea per file: {too_long}"


def test_a_module_opens_with_what_it_is_for() -> None:
    without = [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert MODULES and not without, f"write a docstring for {without}"


def test_constraints_policies_deployment_and_storage_do_not_import_jax_when_they_are_imported() -> None:
    checked = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] in NEVER_NEEDS_JAX]
    assert {path.relative_to(PACKAGE).parts[0] for path in checked} == set(NEVER_NEEDS_JAX)
    imports = {name_of(path): module_level_imports(ast.parse(path.read_text())) for path in checked}
    offending = {name: found for name in imports if (found := imports[name] & {"jax", "jaxlib", "optax"})}
    assert not offending, f"import them inside of the functions that need them: {offending}"


def test_imports_respect_the_layers() -> None:
    checked = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout


def test_every_package_has_its_place_in_the_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    placed = set(re.findall(r"inbounds\.(\w+)", str([contract["layers"] for contract in contracts])))
    packages = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert packages - {"__init__", "__main__"} <= placed, "name it in the contracts of pyproject.toml"


def test_no_tracked_file_names_a_folder_of_some_machine() -> None:
    machine_path = re.compile(r"(?<![\w.\-])/(?:work|root|tmp|home|opt|Users)/")
    found = [
        f"{name}: {match.group()}" for name, text in tracked_texts() for match in machine_path.finditer(text)
    ]
    assert not found, found


def test_no_tracked_file_names_a_package_registry() -> None:
    hosts = (
        "pypi" + ".org",
        "python" + "hosted",
        "registry." + "npmjs",
        "deb." + "debian",
        "download." + "pytorch",
    )
    found = [f"{name}: {host}" for name, text in tracked_texts() for host in hosts if host in text]
    assert not found, found


def test_pins_are_exact_and_name_no_place() -> None:
    pins = {name_of(path): path.read_text().splitlines() for path in PINS}
    loose = [
        f"{name}: {line}"
        for name, lines in pins.items()
        for line in lines
        if not line.startswith("#") and not re.fullmatch(r"[a-z0-9-]+==[\w.+]+( ; .+)?", line)
    ]
    empty = [name for name, lines in pins.items() if all(line.startswith("#") for line in lines)]
    assert pins and not empty and not loose, (empty, loose)


def test_the_mujoco_of_every_published_number_is_the_one_installed_everywhere() -> None:
    exact = (ROOT / "requirements" / "exact.in").read_text().splitlines()[-1]
    for name in ("runtime", "peers"):
        assert exact in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", python_blocks(ROOT / "README.md"))
def test_a_code_block_of_the_readme_runs(block: str, tmp_path: Path) -> None:
    (tmp_path / "policies").symlink_to(ROOT / "policies")  # the README is read from the root of the checkout
    ran = subprocess.run([*STRICT, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=name_of)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    ran = subprocess.run([*STRICT, path], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
