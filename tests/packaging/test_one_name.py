"""A folder is importable under its installed name only.

With the checkout's root on the path, ``import models`` would make a second copy of every class and
registration, and ``isinstance`` between the copies fails. Each package refuses it.
"""

import importlib.util
from pathlib import Path

import pytest


@pytest.mark.parametrize("folder", ["kernels/spectral", "models", "parallel", "train", "eval"])
def test_import_under_the_short_name_is_refused(repository: Path, folder: str):
    short_name = folder.replace("/", ".")
    file = repository / folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(short_name, file)
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError, match=rf"dualwave\.{short_name}"):
        spec.loader.exec_module(module)


def test_kernels_has_no_init_file(repository: Path):
    # With one it would be taken for the hub package `kernels` (test_hub_kernels.py).
    assert not (repository / "kernels" / "__init__.py").exists()
