"""constraints.txt pins all that is installed, as it is installed, in pyproject.toml's ranges."""

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version


@pytest.fixture(scope="module")
def pins(repository: Path) -> dict[str, Version]:
    lines = (repository / "constraints.txt").read_text().splitlines()
    pinned = {}
    for line in lines:
        if line and not line.startswith("#"):
            name, version = line.split("==")
            pinned[canonicalize_name(name)] = Version(version)
    return pinned


def direct_requirements(pyproject: dict[str, Any]) -> list[Requirement]:
    project = pyproject["project"]
    lines = [*pyproject["build-system"]["requires"], *project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    return [
        requirement
        for line in lines
        if (requirement := Requirement(line)).name != project["name"]
        and (requirement.marker is None or requirement.marker.evaluate())
    ]


def installed_distributions(requirements: list[Requirement]) -> dict[str, Version]:
    """Name and installed version of all that ``requirements`` need, directly or not."""
    found: dict[str, Version] = {}
    seen: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        distribution = importlib.metadata.distribution(name)
        found[name] = Version(distribution.version)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for needed in map(Requirement, distribution.requires or []):
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(needed)
    return found


def test_pins_lie_in_the_declared_ranges(pins, pyproject):
    for requirement in direct_requirements(pyproject):
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} is not pinned in constraints.txt"
        assert pins[name] in requirement.specifier, f"{name}=={pins[name]} is not in {requirement}"


@pytest.fixture(scope="module")
def installed(pyproject: dict[str, Any]) -> dict[str, Version]:
    # From pyproject.toml: metadata of an earlier build may lie in the checkout's root.
    return installed_distributions(direct_requirements(pyproject))


def test_all_that_is_installed_is_pinned_at_its_version(pins, installed):
    # A local label such as +cpu names a build of the same version.
    differing = {
        name: f"installed {version}, pinned {pins.get(name)}"
        for name, version in installed.items()
        if Version(version.public) != pins.get(name)
    }
    assert not differing


def test_no_pin_is_left_over(pins, installed):
    platform_specific = {"triton"}
    assert set(pins) - set(installed) <= platform_specific
