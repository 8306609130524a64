"""For all tests: every shape and type annotated in `glassformer` is checked when it is called."""

from __future__ import annotations

from tests.typechecker import install

install()
