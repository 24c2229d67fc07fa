import ast

import pytest

import dualwave


def test_every_public_name_is_there():
    assert set(dualwave.__all__) <= set(dir(dualwave))
    for name in dualwave.__all__:
        assert getattr(dualwave, name).__name__ == name


def test_type_checkers_see_the_same_names(repository):
    tree = ast.parse((repository / "dualwave" / "__init__.py").read_text())
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dualwave.")
        for alias in node.names
    }
    assert seen == set(dualwave.__all__)


def test_other_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="'dualwave' has no attribute 'lode'"):
        dualwave.lode  # noqa: B018 (the access is what is tested)
