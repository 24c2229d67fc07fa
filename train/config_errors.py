"""One sentence for a wrong key or value: what, where, what is allowed, the nearest right one."""

import difflib
import types
from collections.abc import Iterable
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name most like `word`, or None when none is alike."""
    matches = difflib.get_close_matches(word, list(names), n=1, cutoff=0.6)
    return matches[0] if matches else None


def did_you_mean(name: str | None) -> str:
    """The end of a sentence that offers `name`; empty without one."""
    return f"; did you mean {name!r}?" if name else "."


def describe(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """Put the first problem that pydantic found into one sentence.

    Args:
        error: what validating raised.
        model: the model that was validated, for its keys.
        source: where the values come from, for the reader.
    """
    problems = error.errors(include_url=False)
    # An unknown key comes first: it is often the reason that another one is missing.
    problem = min(problems, key=lambda item: item["type"] != "extra_forbidden")
    path = [str(part) for part in problem["loc"]]
    key = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return _unknown_key(path, model, source)
    if problem["type"] == "missing" and not path[-1].isdigit():  # else an item of a tuple
        field = _section(model, path[:-1]).model_fields[path[-1]]
        return f"{source} has no {key!r}, which is needed: {_first_sentence(field.description)}"
    if problem["type"] == "value_error":
        reason = str(problem["ctx"]["error"])
        return f"{source}: {key}: {reason}" if key else f"{source}: {reason}"
    value = problem["input"]
    allowed = problem["msg"].removeprefix("Input should be ")
    suggestion = None
    if problem["type"] == "literal_error" and isinstance(value, str):
        suggestion = nearest(value, _literals(model, path))
    return f"{source}: {key} is {value!r}, but must be {allowed}{did_you_mean(suggestion)}"


def _unknown_key(path: list[str], model: type[BaseModel], source: str) -> str:
    section = _section(model, path[:-1])
    allowed = list(section.model_fields)
    where = f"under {'.'.join(path[:-1])!r}" if path[:-1] else "at the top"
    suggestion = nearest(path[-1], allowed)
    if suggestion:
        suggestion = ".".join([*path[:-1], suggestion])
    else:
        # Perhaps the right key in the wrong place.
        suggestion = next(
            (full for full in _all_keys(model) if full.endswith("." + path[-1])), None
        )
    return (
        f"{source}: unknown key {'.'.join(path)!r}; allowed {where} are "
        f"{', '.join(allowed)}{did_you_mean(suggestion)}"
    )


def _section(model: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for part in path:
        inner = model.model_fields[part].annotation
        assert isinstance(inner, type)
        assert issubclass(inner, BaseModel)
        model = inner
    return model


def _all_keys(model: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _all_keys(field.annotation, f"{prefix}{name}.")


def _literals(model: type[BaseModel], path: list[str]) -> list[str]:
    annotation: Any = _section(model, path[:-1]).model_fields[path[-1]].annotation
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if get_args(part))
    return [str(value) for value in get_args(annotation)]


def _first_sentence(description: str | None) -> str:
    text = " ".join((description or "").split())
    return text.split(". ")[0].rstrip(".") + "."
