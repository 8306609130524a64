"""Every package that the source imports is declared: none only comes with another."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported() -> set[str]:
    """Return the top-level packages that the source imports, inside functions too."""
    names = set[str]()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - {*sys.stdlib_module_names, "glassformer"}


def test_every_import_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in extras for line in extras[name])]
    declared = {re.split(r"[\[><=; ]", line)[0].lower().replace("_", "-") for line in lines}
    distributions = packages_distributions()
    missing = {
        name
        for name in imported()
        if not {each.lower().replace("_", "-") for each in distributions.get(name, [name])} & declared
    }
    assert not missing
