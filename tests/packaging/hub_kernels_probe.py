"""Run by test_hub_kernels.py in other processes: load a checkpoint, say which `kernels` was found.

Environment: PROBE_CHECKPOINT, the folder of a saved model; PROBE_REPORT, the file to write.
"""

import json
import os
import sys
from pathlib import Path


def test_probe() -> None:
    import transformers
    from transformers.utils.import_utils import is_kernels_available

    import dualwave.models  # registers the model with transformers

    model = transformers.AutoModel.from_pretrained(os.environ["PROBE_CHECKPOINT"])
    assert isinstance(model, dualwave.models.DualStreamModel)
    report = {
        "on_path": "" in sys.path or os.getcwd() in sys.path,
        "taken_for_hub_package": is_kernels_available(),
        "file": getattr(sys.modules.get("kernels"), "__file__", None),
    }
    Path(os.environ["PROBE_REPORT"]).write_text(json.dumps(report))


if __name__ == "__main__":
    test_probe()
