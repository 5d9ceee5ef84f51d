"""What a training step costs: operations, memory, depth and time, without computing it.

`trace.py` runs a step of any module (`step.py`) or of a recipe (`workload.py`) once, with
floating-point tensors that have no data. `harken.cost` is both this package and a function:
`harken.cost(module, *inputs)` calls `step.cost`.
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
