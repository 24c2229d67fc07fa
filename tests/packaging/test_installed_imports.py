"""``dualwave.kernels.spectral`` is found by an editable install or a wheel, from anywhere."""

import sys
import sysconfig
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

IMPORT = (
    "import dualwave, dualwave.kernels.spectral as spectral, dualwave.eval as eval\n"
    "assert dualwave.spectral_attention is spectral.spectral_attention\n"
    "print(spectral.__file__, eval.__file__, sep='\\n')"
)


@pytest.fixture(scope="module")
def unpacked_wheel(repository, run_quietly, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    build = [sys.executable, "-m", "pip", "wheel", *options, "-w", folder]
    copy = folder / "source"
    copy.mkdir()
    for entry in repository.iterdir():
        # Links, so that the build writes its folders beside them and not into the checkout.
        if entry.name not in ("build", "dualwave.egg-info", ".git"):
            (copy / entry.name).symlink_to(entry)
    run_quietly([*build, copy], cwd=folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def found(repository, run_quietly, unpacked_wheel, tmp_path_factory):
    """Where the two modules were found, for each kind of install and each working folder."""
    outside = tmp_path_factory.mktemp("outside")
    # With -S and the libraries on the path, .pth files and thus the editable install are off.
    wheel_path = f"{unpacked_wheel}:{sysconfig.get_path('purelib')}"
    cases = {
        ("editable", "checkout"): ([], repository, {}),
        ("editable", "outside"): ([], outside, {}),
        ("wheel", "checkout"): (["-S"], repository, {"PYTHONPATH": wheel_path}),
        ("wheel", "outside"): (["-S"], outside, {"PYTHONPATH": wheel_path}),
    }

    def run(case) -> list[str]:
        options, folder, environment = case
        command = [sys.executable, *options, "-c", IMPORT]
        return run_quietly(command, cwd=folder, environment=environment).stdout.split()

    with ThreadPoolExecutor(2) as executor:
        return dict(zip(cases, executor.map(run, cases.values()), strict=True))


@pytest.mark.parametrize(
    ("install", "folder"),
    [("editable", "checkout"), ("editable", "outside"), ("wheel", "checkout")],
)
def test_modules_are_those_of_the_checkout(found, repository, install, folder):
    # A wheel does not count in the root of a checkout: Python looks in the working folder first.
    assert found[install, folder] == [
        str(repository / "kernels" / "spectral" / "__init__.py"),
        str(repository / "eval" / "__init__.py"),
    ]


def test_modules_are_those_of_the_wheel_outside(found, unpacked_wheel):
    assert found["wheel", "outside"] == [
        str(unpacked_wheel / "dualwave" / "kernels" / "spectral" / "__init__.py"),
        str(unpacked_wheel / "dualwave" / "eval" / "__init__.py"),
    ]


def test_command_is_installed(run_quietly, tmp_path):
    command = Path(sys.executable).parent / "dualwave"
    assert "demo" in run_quietly([command, "--help"], cwd=tmp_path).stdout
