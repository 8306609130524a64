"""Training: the loop, the loss, the schedule, the optimizer, checkpoints, the report.

The package has the same name as the function `glassformer.train`, and importing a submodule binds the
package to that name. So the package can be called, and calling it is the function: whichever of the two
a program comes to hold, `glassformer.train("dates")` trains.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A module whose call is `glassformer.run.train`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from glassformer.run import train

        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
