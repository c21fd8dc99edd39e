"""The structure holds: which package may import which, what stays unloaded, what is installed."""

from __future__ import annotations

import ast
import fnmatch
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
FOLDERS = {
    "tfc": "tfc",
    "passes": "tfc.passes",
    "backends": "tfc.backends",
    "grammar": "tfc.grammar",
}

MAY_IMPORT: dict[str, set[str]] = {
    "ir": set(),
    "grammar": set(),
    "runtime": set(),
    "text": {"ir", "grammar"},
    "tile": {"ir"},
    "targets": {"ir"},
    "ops": {"ir", "tile", "runtime"},
    "interpret": {"ir", "tile", "ops", "runtime", "interpret_frames"},
    "interpret_frames": {"ir", "interpret"},
    "importers": {"ir", "ops"},
    "backends": {"ir", "tile", "targets"},
    "bundle_elf": set(),
    "bundle_files": {"ir"},
    "bundle_link": {"ir", "bundle_elf"},
    "bundle": {"ir", "runtime", "bundle_elf", "bundle_files"},
    "report": {"ir", "text", "bundle_files"},
    "passes": {"ir", "text", "tile", "ops", "targets", "interpret", "report"},
}
"""What each part may import, inside functions too. Driver, sessions and commands may import all."""

HEAVY = {"llvmlite", "triton", "lark", "onnx", "onnxruntime", "rich", "safetensors", "ziglang"}
"""Imported by the function that needs them, so that what does not is quick."""

COMMAND_LINE = {"__future__", "click", *sys.stdlib_module_names}
"""What a command's file may import before the command runs, besides tfc.ir, tfc.cli, tfc.report."""


@dataclass(frozen=True)
class Import:
    """One imported module; `top` if it happens when the file is imported."""

    name: str
    top: bool
    line: int


def modules() -> dict[str, Path]:
    """Every module of tfc by its name, each once, not through the links."""
    found: dict[str, Path] = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            relative = path.relative_to(ROOT / folder)
            if folder == "tfc" and (ROOT / "tfc" / relative.parts[0]).is_symlink():
                continue
            parts = [p for p in relative.with_suffix("").parts if p != "__init__"]
            found[".".join([package, *parts])] = path
    return found


MODULES = modules()


@cache
def imports(module: str) -> tuple[Import, ...]:
    """What a module imports when it runs: not what it imports for its annotations only."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return tuple(_imports(ast.parse(path.read_text()).body, package, top=True))


def _imports(nodes: Iterable[ast.AST], package: str, *, top: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, top, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            prefix = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            name = ".".join(filter(None, [prefix, node.module]))
            of_root = name == "tfc"  # `from tfc import ops` imports tfc.ops
            for alias in node.names[: None if of_root else 1]:
                yield Import(f"tfc.{alias.name}" if of_root else name, top, node.lineno)
        else:
            inner = top and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(ast.iter_child_nodes(node), package, top=inner)


def part(module: str) -> str:
    """`ops` for `tfc.ops.base`."""
    return module.split(".")[1] if "." in module else ""


# ---- layers


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_layers(name: str) -> None:
    own = [m for m in MODULES if part(m) == name]
    assert own, f"there is no tfc.{name}"
    wrong = [
        f"{module}:{found.line} imports {found.name}"
        for module in own
        for found in imports(module)
        if found.name.split(".")[0] == "tfc" and part(found.name) not in {name, *MAY_IMPORT[name]}
    ]
    assert not wrong, "\n".join(wrong)


def test_every_part_has_its_place() -> None:
    sessions = {"session", "session_compiled", "session_values", "partial_run"}
    assert {part(m) for m in MODULES} - MAY_IMPORT.keys() == {"", "driver", "cli", *sessions}


def test_runtime_needs_only_numpy() -> None:
    allowed = {"numpy", *sys.stdlib_module_names}
    for module in (m for m in MODULES if part(m) == "runtime"):
        for found in imports(module):
            root = found.name.split(".")[0]
            optional = root == "ml_dtypes" and not found.top  # for outputs of bf16, if it is there
            own = part(found.name) == "runtime"
            assert root in allowed or optional or own, f"{module}: {found.name}"


def test_heavy_imports_are_inside_functions() -> None:
    wrong = [
        f"{module}:{found.line} imports {found.name}"
        for module in MODULES
        for found in imports(module)
        if found.top and found.name.split(".")[0] in HEAVY
    ]
    assert not wrong, "\n".join(wrong)


def test_commands_import_little_before_they_run() -> None:
    wrong = [
        f"{module}:{found.line} imports {found.name}"
        for module in MODULES
        if part(module) == "cli"
        for found in imports(module)
        if found.top
        and found.name.split(".")[0] not in COMMAND_LINE
        and part(found.name) not in ("cli", "ir", "report")
    ]
    assert not wrong, "\n".join(wrong)


def test_packages_go_by_their_full_names() -> None:
    """`import passes` would load a second copy of `tfc.passes`."""
    for path in _python_files():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in FOLDERS.keys() - {"tfc"}, f"{path}: {name}"


def _python_files() -> Iterator[Path]:
    yield from MODULES.values()
    for folder in ("tests", "examples"):
        yield from (ROOT / folder).rglob("*.py")


# ---- what is loaded when


def _fresh(code: str) -> str:
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout


def test_import_is_lazy_and_quick() -> None:
    code = (
        "import sys, time; start = time.process_time(); import tfc; "
        "spent = time.process_time() - start; tfc.TfcError; "
        "print(spent, *(m for m in sys.modules if m.startswith(('tfc', 'numpy'))))"
    )
    spent, *loaded = _fresh(code).split()
    assert float(spent) < 0.05
    assert set(loaded) == {"tfc", "tfc.ir", "tfc.ir.errors"}


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; import tfc.cli; "
        "assert CliRunner().invoke(tfc.cli.main, ['--help']).exit_code == 0; print(*sys.modules)"
    )
    loaded = set(_fresh(code).split())
    assert not loaded & {*HEAVY, "numpy", "tfc.ops", "tfc.passes", "tfc.backends", "tfc.driver"}


def test_public_names_exist() -> None:
    import tfc

    for name in tfc.__all__:
        assert getattr(tfc, name) is not None
        assert name in dir(tfc)
    with pytest.raises(AttributeError, match="'tfc' has no attribute 'nothing'"):
        getattr(tfc, "nothing")  # noqa: B009
    assert tfc.__version__ == PROJECT["project"]["version"]


# ---- what is installed


def test_package_list_equals_the_tree() -> None:
    packages = [m for m, path in MODULES.items() if path.name == "__init__.py"]
    assert SETUPTOOLS["packages"] == sorted(packages)
    assert SETUPTOOLS["package-dir"] == {name: folder for folder, name in FOLDERS.items()}


def test_every_folder_of_modules_is_a_package() -> None:
    for path in MODULES.values():
        assert (path.parent / "__init__.py").is_file(), f"{path.parent} has no __init__.py"


def test_data_files_are_declared() -> None:
    """Each file of the packages that is not Python, by the pattern that has it installed."""
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            relative = path.relative_to(ROOT / folder)
            linked = folder == "tfc" and (ROOT / "tfc" / relative.parts[0]).is_symlink()
            if path.is_dir() or linked or path.suffix in (".py", ".pyc"):
                continue
            assert _is_declared(path, package, ROOT / folder), f"{path} is in no package-data"


def _is_declared(path: Path, package: str, top: Path) -> bool:
    home = next(p for p in path.parents if (p / "__init__.py").is_file())
    name = ".".join([package, *home.relative_to(top).parts])
    relative = path.relative_to(home).as_posix()
    return any(fnmatch.fnmatch(relative, p) for p in SETUPTOOLS["package-data"].get(name, []))


def test_links_to_the_packages_at_the_top() -> None:
    for folder in FOLDERS.keys() - {"tfc"}:
        link = ROOT / "tfc" / folder
        assert link.is_symlink() and link.resolve() == ROOT / folder
