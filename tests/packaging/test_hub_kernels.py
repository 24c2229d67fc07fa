"""Our folder ``kernels`` is never taken for the hub package of that name, nor hides it.

transformers looks for a package ``kernels`` whenever a model is imported, and with the checkout's
root on the path it finds our folder first. Each launcher that puts the root there loads a
checkpoint, with a stand-in for the hub package installed and without.
"""

import ast
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from transformers.integrations import hub_kernels
from transformers.utils.import_utils import KERNELS_MIN_VERSION

from dualwave.models import DualStreamConfig, DualStreamModel, DualStreamProcessor

LAUNCHERS = ("python -c", "python -m pytest", "python -m dualwave", "torchrun")
INSTALLED = {True: "hub package installed", False: "hub package absent"}

STAND_IN = """
import os
from pathlib import Path

class Anything:
    def __init__(self, *arguments, **options): pass

def decorate(*arguments, **options):
    return lambda decorated: decorated

Path(os.environ["PROBE_STAND_IN"]).write_text(__name__)
"""


def names_that_transformers_imports() -> set[str]:
    """What the installed transformers imports from the hub package as soon as it is there."""
    tree = ast.parse(Path(hub_kernels.__file__).read_text())
    return {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "kernels"
        for alias in node.names
    }


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a distribution ``kernels`` in the range that transformers accepts."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / f"kernels-{KERNELS_MIN_VERSION}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: kernels\nVersion: {KERNELS_MIN_VERSION}\n")
    names = names_that_transformers_imports()
    assert "CUDAProperties" in names
    lines = [
        f"{name} = {'decorate' if '_kernel' in name else 'Anything'}" for name in sorted(names)
    ]
    package = site / "kernels" / "__init__.py"
    package.parent.mkdir()
    package.write_text(STAND_IN + "\n".join(lines) + "\n")
    return site


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with its processor."""
    folder = tmp_path_factory.mktemp("checkpoint")
    processor = DualStreamProcessor.from_captions(["the red three"], image_size=16)
    config = DualStreamConfig(
        image_size=16,
        vision_width=16,
        vision_mixers=["spectral"],
        vision_heads=1,
        text_width=16,
        text_layers=1,
        text_heads=1,
        fusion_mixers=["spectral"],
        vocab_size=len(processor.tokenizer),
    )
    DualStreamModel(config).save_pretrained(folder)
    processor.save_pretrained(folder)
    Image.new("RGB", (20, 12)).save(folder / "photo.png")
    return folder


@pytest.fixture(scope="module")
def outcomes(repository, run_quietly, checkpoint, stand_in, tmp_path_factory):
    """Run every launcher with and without the stand-in, two at a time; a folder for each."""
    probe = repository / "tests" / "packaging" / "hub_kernels_probe.py"
    run_probe = f"import runpy; runpy.run_path({str(probe)!r}, run_name='__main__')"
    torchrun = Path(sys.executable).parent / "torchrun"
    predict = ["dualwave", "predict", checkpoint, checkpoint / "photo.png", "--text", "red"]
    commands = {
        "python -c": [sys.executable, "-c", run_probe],
        "python -m pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", probe],
        "python -m dualwave": [sys.executable, "-m", *predict],
        "torchrun": [torchrun, "--standalone", "--nproc-per-node", "1", "-m", *predict],
    }

    def run(launcher: str, installed: bool) -> Path:
        folder = tmp_path_factory.mktemp("outcome")
        environment = {
            "PROBE_CHECKPOINT": str(checkpoint),
            "PROBE_REPORT": str(folder / "report.json"),
            "PROBE_STAND_IN": str(folder / "imported"),
        }
        if installed:
            environment["PYTHONPATH"] = str(stand_in)
        command = list(commands[launcher])
        if predict[0] in command:
            command += ["--output", folder]
        run_quietly(command, cwd=repository, environment=environment)
        return folder

    cases = [(launcher, installed) for launcher in LAUNCHERS for installed in INSTALLED]
    with ThreadPoolExecutor(2) as executor:
        return dict(zip(cases, executor.map(lambda case: run(*case), cases), strict=True))


@pytest.mark.parametrize("installed", INSTALLED, ids=INSTALLED.get)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_checkpoint_loads_from_the_root(outcomes, launcher, installed):
    folder = outcomes[launcher, installed]

    # The stand-in leaves a file when it is imported under the name that transformers asks for.
    assert (folder / "imported").exists() == installed
    if launcher in ("python -c", "python -m pytest"):
        assert (folder / "report.json").exists()
    else:
        assert (folder / "photo.map.png").exists()


@pytest.mark.parametrize("installed", INSTALLED, ids=INSTALLED.get)
@pytest.mark.parametrize("launcher", ["python -c", "python -m pytest"])
def test_transformers_sees_the_hub_package_only_where_it_is(
    outcomes, stand_in, launcher, installed
):
    report = json.loads((outcomes[launcher, installed] / "report.json").read_text())

    assert report["on_path"]
    assert report["taken_for_hub_package"] == installed
    expected = str(stand_in / "kernels" / "__init__.py") if installed else None
    assert report["file"] == expected
