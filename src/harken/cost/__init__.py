"""Cost of a training step: operations, memory and depth from a trace, and time from its kernels.

`harken.cost` is both this package and a function: `harken.cost(module, *inputs)` is `step.cost`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harken.cost.step import Cost


class _CallablePackage(ModuleType):
    def __call__(self, module: Any, *inputs: Any, **keywords: Any) -> "Cost":
        from harken.cost.step import cost

        return cost(module, *inputs, **keywords)


sys.modules[__name__].__class__ = _CallablePackage
