"""Which package may import which: a parse of all imports, against the table of ARCHITECTURE.md."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

PACKAGES = ("kernels", "models", "parallel", "train", "eval")
MAY_IMPORT = {
    "kernels": {"torch", "triton", "einops", "numpy"},
    "models": {"kernels", "transformers"},
    "parallel": {"kernels"},
    "train": {"models", "parallel", "kernels", "eval"},
    "eval": {"kernels"},
    "dualwave": {*PACKAGES, "transformers"},
}
"""Our packages and transformers are forbidden unless named; for kernels, every library is."""

INSTALLED_AS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


def imported_names(source: str, module: str, *, is_package: bool) -> Iterator[str]:
    """Full dotted names of everything that ``source``, the code of ``module``, imports.

    ``from a import b`` gives ``a.b``, which may be a module. Relative imports are resolved.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                parts = module.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                start = ".".join([*kept, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)


def find_fault(package: str, imported: str) -> str | None:
    """Why ``package`` (a key of MAY_IMPORT) must not import ``imported``; None if it may."""
    first, _, rest = imported.partition(".")
    if first in PACKAGES:
        return f"imports {imported}, which is installed as dualwave.{imported}"
    if first in sys.stdlib_module_names:
        return None
    if first == "dualwave":
        target = rest.partition(".")[0]
        if target == package or target in MAY_IMPORT[package] or package == "dualwave":
            return None
        return f"imports {imported}"
    if first in MAY_IMPORT[package]:
        return None
    if package == "kernels" or first == "transformers":
        return f"imports {imported}"
    return None


@pytest.fixture(scope="module")
def imports(repository: Path, package_folders: dict[str, str]) -> list[tuple[str, str, str]]:
    """(package, file, imported name) for every import of every installed module."""
    found = []
    for name, folder in package_folders.items():
        for path in sorted((repository / folder).rglob("*.py")):
            inside = path.relative_to(repository / folder).with_suffix("")
            is_package = path.name == "__init__.py"
            parts = inside.parts[:-1] if is_package else inside.parts
            module = ".".join([name, *parts])
            for imported in imported_names(path.read_text(), module, is_package=is_package):
                found.append((folder, str(path.relative_to(repository)), imported))
    return found


def test_packages_import_in_the_allowed_directions(imports):
    faults = [
        f"{file} {fault}"
        for package, file, imported in imports
        if (fault := find_fault(package, imported))
    ]
    assert not faults, "\n".join(faults)
    assert {package for package, _, _ in imports} >= {"kernels", "models", "train", "eval"}


def test_no_test_or_benchmark_imports_a_folder_by_its_short_name(repository):
    faults = [
        f"{path.relative_to(repository)} imports {imported}"
        for folder in ("tests", "benchmarks")
        for path in (repository / folder).rglob("*.py")
        for imported in imported_names(path.read_text(), "__main__", is_package=False)
        if imported.partition(".")[0] in PACKAGES
    ]
    assert not faults, "\n".join(faults)


def test_every_imported_library_is_declared(imports, pyproject):
    project: dict[str, Any] = pyproject["project"]
    optional = project["optional-dependencies"]
    requirements = [*project["dependencies"], *optional["report"], *optional["tensorboard"]]
    declared = {Requirement(line).name.lower() for line in requirements}
    missing = {
        f"{file} imports {library}"
        for _, file, imported in imports
        if (library := imported.partition(".")[0]) not in sys.stdlib_module_names
        and library != "dualwave"
        and INSTALLED_AS.get(library, library).lower() not in declared
    }
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("kernels", "import transformers"),
        ("kernels", "from dualwave.models.towers import Tower"),
        ("models", "from dualwave.train import losses"),
        ("models", "from dualwave import train"),
        ("models", "from kernels.spectral import spectral_attention"),
        ("models", "def later():\n    from ..parallel import mesh"),
        ("parallel", "import dualwave.models.towers as towers"),
        ("eval", "from transformers import AutoModel"),
        ("train", "from dualwave.cli import main"),
    ],
)
def test_a_forbidden_import_is_found(package, source):
    names = imported_names(source, f"dualwave.{package}.module", is_package=False)
    assert any(find_fault(package, name) for name in names)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("kernels", "import triton.language as tl"),
        ("models", "from dualwave.kernels.spectral import spectral_attention"),
        ("models", "from .towers import Tower"),
        ("train", "from dualwave.eval.saliency import SaliencyEvaluator"),
        ("dualwave", "from dualwave.train.run import train"),
    ],
)
def test_an_allowed_import_is_not_reported(package, source):
    names = imported_names(source, f"dualwave.{package}.module", is_package=False)
    assert not any(find_fault(package, name) for name in names)


def test_the_architecture_document_has_the_same_table(repository):
    text = (repository / "ARCHITECTURE.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \| `[\w.]+` \|.*\| (.+?) \|$", text, flags=re.MULTILINE)
    documented = {
        folder: set(re.findall(r"[a-z]+", allowed.partition(";")[0])) for folder, allowed in rows
    }
    expected = {name: set(allowed) for name, allowed in MAY_IMPORT.items()}
    expected["dualwave"] = {"everything"}
    assert documented == expected
