import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_run_after_the_demo(finished_demo):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)
    assert len(blocks) == 3
    printed = io.StringIO()
    names = {"__name__": "readme"}
    with contextlib.chdir(finished_demo.home), contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, str(README), "exec"), names)
    assert names["whole"].shape == names["out"].shape
    assert names["model"].config._attn_implementation == "dualwave"
    first, second = printed.getvalue().splitlines()
    assert 0 < float(first.split(" AP ")[1]) <= 1
    assert second == "4 torch.Size([4, 4])"


def test_every_file_that_it_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert links
    for link in links:
        assert (README.parent / link).exists(), link


def test_code_named_in_the_tutorial_table_exists():
    table = README.read_text(encoding="utf-8").split("| tutorial | here |")[1]
    here = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")]
    paths = re.findall(r"`((?:kernels|models|parallel|train|eval)/[\w./]*)`", " ".join(here))
    assert len(paths) >= 4
    for path in paths:
        assert (README.parent / path).exists(), path
