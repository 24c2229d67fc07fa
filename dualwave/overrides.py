"""``section.field=value`` words of the command line, checked against a pydantic model."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError, create_model

from dualwave.train.config_errors import describe

Section = TypeVar("Section", bound=BaseModel)


def read_section(
    name: str, model: type[Section], values: Mapping[str, Any], overrides: Sequence[str]
) -> Section:
    """Build one section of a config from values and ``name.field=value`` words.

    Args:
        name: of the section, such as ``data``.
        model: the section's type.
        values: fields that are set already; overrides win.
        overrides: words of the command line, values in YAML.

    Raises:
        ValueError: a word that is no override of this section, an unknown field or a wrong value.
    """
    merged = dict(values)
    for word in overrides:
        key, equals, text = word.partition("=")
        if not equals or not key.startswith(f"{name}."):
            raise ValueError(
                f"{word!r} is not of the form {name}.field=value; the fields are "
                f"{', '.join(model.model_fields)}"
            )
        try:
            merged[key.removeprefix(f"{name}.")] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise ValueError(f"the value of {word!r} is not valid YAML; quote it") from None
    root = create_model("CommandLine", **{name: (model, ...)})  # type: ignore[call-overload]
    try:
        return getattr(root.model_validate({name: merged}), name)
    except ValidationError as error:
        raise ValueError(describe(error, root, "the command line")) from None
