import pytest
from pydantic import BaseModel, ConfigDict

from dualwave.overrides import read_section


class Sizes(BaseModel):
    model_config = ConfigDict(extra="forbid")

    width: int = 3
    label: str | None = "a"


def test_values_are_yaml_and_override():
    assert read_section("sizes", Sizes, {"width": 5}, []) == Sizes(width=5)
    words = ["sizes.width=7", "sizes.label=null"]
    assert read_section("sizes", Sizes, {"width": 5}, words) == Sizes(width=7, label=None)
    assert read_section("sizes", Sizes, {}, ["sizes.label=a=b"]).label == "a=b"


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("sizes.widht=3", ["sizes.widht", "did you mean", "sizes.width"]),
        ("sizes.width=wide", ["sizes.width", "wide", "integer"]),
        ("width=3", ["width=3", "sizes."]),
        ("sizes.width", ["sizes.width"]),
        ("sizes.label=[", ["sizes.label", "YAML"]),
    ],
)
def test_a_wrong_word_is_named(word, parts):
    with pytest.raises(ValueError, match=r".") as caught:
        read_section("sizes", Sizes, {}, [word])
    for part in parts:
        assert part in str(caught.value)
