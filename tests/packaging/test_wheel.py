"""Wheel and source distribution hold what the tree holds: nothing forgotten, nothing else."""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

BUILD_LEFTOVERS = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


@pytest.fixture(scope="module")
def clean_copy(
    repository: Path, package_folders: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What a clone has of the packages: no earlier build lends a module to this one."""
    copy = tmp_path_factory.mktemp("copy")
    for folder in package_folders.values():
        shutil.copytree(repository / folder, copy / folder, ignore=BUILD_LEFTOVERS)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(repository / file, copy / file)
    return copy


@pytest.fixture(scope="module")
def files_in_tree(clean_copy: Path, package_folders: dict[str, str]) -> set[str]:
    """Every file of the packaged folders under the path at which it must be installed."""
    return {
        f"{name.replace('.', '/')}/{path.relative_to(clean_copy / folder).as_posix()}"
        for name, folder in package_folders.items()
        for path in (clean_copy / folder).rglob("*")
        if path.is_file()
    }


def read_wheel(folder: Path) -> set[str]:
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def pip_wheel(source: Path, output: Path) -> list[str | Path]:
    # setuptools is installed for the tests, so nothing is downloaded.
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "wheel", *options, "-w", output, source]


def test_wheel_holds_the_tree(clean_copy, files_in_tree, run_quietly, tmp_path):
    run_quietly(pip_wheel(clean_copy, tmp_path), cwd=tmp_path)

    wheel = read_wheel(tmp_path)
    forgotten = sorted(files_in_tree - wheel)
    assert not forgotten, f"add these to [tool.setuptools] in pyproject.toml: {forgotten}"
    assert wheel == files_in_tree


def test_source_distribution_builds_the_same_wheel(
    clean_copy, files_in_tree, run_quietly, tmp_path
):
    build = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run_quietly([sys.executable, "-c", build, tmp_path], cwd=clean_copy)
    (source_distribution,) = tmp_path.glob("*.tar.gz")
    run_quietly(pip_wheel(source_distribution, tmp_path), cwd=tmp_path)

    assert read_wheel(tmp_path) == files_in_tree
