"""For all tests: every shape and type annotated in `glassformer` is checked when it is called."""

from __future__ import annotations

import tests.typechecker  # noqa: F401  (the hook finds it by its name)
from jaxtyping import install_import_hook

# Must come before the package is first imported; nothing is checked outside of tests.
install_import_hook("glassformer", "tests.typechecker.check")
