"""The graph ops, one class each; importing this package registers them all.

A family is a file here: `from tfc.ops.arithmetic import Add`. A new one needs no line elsewhere.
"""

from __future__ import annotations

import importlib
import pkgutil

for _family in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_family.name}")
