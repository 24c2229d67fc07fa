"""Check the types of everything that is installed: ``python tests/typecheck.py``.

mypy reads folders, not the table in pyproject.toml by which an editable install finds
``dualwave.models`` in ``models/``. So the packages are laid out under their import names first, as
links in ``.links`` (made anew each time, ignored by git), and mypy runs there.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path


def read_package_folders(root: Path) -> dict[str, str]:
    """The ``package-dir`` table of ``root``'s pyproject.toml: import name to folder."""
    with (root / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["tool"]["setuptools"]["package-dir"]


def lay_out_links(root: Path, folders: dict[str, str]) -> Path:
    """Make ``root/.links`` anew, with a link at each import name, and return it."""
    links = root / ".links"
    if links.exists():
        shutil.rmtree(links)
    for name, folder in folders.items():
        package = links.joinpath(*name.split("."))
        if any(other.startswith(f"{name}.") for other in folders):
            # Other packages go into this one, so it is a folder with a link for each entry.
            package.mkdir(parents=True)
            for entry in (root / folder).iterdir():
                if entry.name != "__pycache__":
                    (package / entry.name).symlink_to(entry)
        else:
            package.symlink_to(root / folder, target_is_directory=True)
    return links


def check_types(root: Path) -> int:
    """Run mypy over all packages of the checkout ``root``; print its report; return its exit code.

    Raises:
        RuntimeError: if mypy says that all is well but has not read every file.
    """
    folders = read_package_folders(root)
    links = lay_out_links(root, folders)
    options = ["--config-file", str(root / "pyproject.toml"), "--cache-dir", "../.mypy_cache"]
    top_level = sorted({name.split(".")[0] for name in folders})
    packages = [word for name in top_level for word in ("--package", name)]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *packages],
        cwd=links,
        capture_output=True,
        text=True,
        check=False,
    )
    report = result.stdout
    for name, folder in folders.items():
        report = re.sub(rf"^{name.replace('.', '/')}/", f"{folder}/", report, flags=re.MULTILINE)
    print(report + result.stderr, end="")
    if result.returncode == 0:
        tops = [root / folder for folder in folders.values() if "/" not in folder]
        entries = [entry for top in tops for entry in (top, *top.rglob("*"))]
        files = sum(entry.suffix == ".py" for entry in entries)
        # mypy counts a folder without __init__.py as a file more.
        bare = sum(
            entry.is_dir() and entry.name != "__pycache__" and not (entry / "__init__.py").exists()
            for entry in entries
        )
        if f"in {files + bare} source file" not in report:
            raise RuntimeError(f"mypy has not read all of the {files} files: {report}")
    return result.returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check the types of everything installed.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    sys.exit(check_types(parser.parse_args().root.resolve()))
