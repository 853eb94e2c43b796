"""Making a model smaller: statistics, grids, rounding, allocation, search and report.

The verb has the folder's name: `penjing.shrink(model, to="1/4")`. Importing a part of this package binds the
package, not the function, to `penjing.shrink`, so the package itself can be called.
"""

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from penjing.shrink.verb import shrink

        return shrink(*args, **kwargs)


sys.modules[__name__].__class__ = _CallablePackage
