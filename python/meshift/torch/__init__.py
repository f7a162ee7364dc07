"""Redistributes DTensors by Meshift's plans, on any backend of torch.distributed.

    import meshift.torch
    replicated = meshift.torch.redistribute(dtensor, [Replicate(), Replicate()])

    with meshift.torch.use(promise="ordered"):     # also DTensor's own redistributions
        loss = model(batch).sum()

All ranks of the mesh call redistribute() in the same order, with equal arguments; plan_of() is for
one rank. The first call for a pair of shardings makes the plan, compares it with the other ranks,
creates the groups that it needs, and compiles it. Later calls reuse the result; the first four of a
mesh compare again.

Source and target are on one mesh. For a dtype or placement that Meshift does not have,
redistribute() raises NotImplementedError; use() leaves those, and some other redistributions, to
PyTorch. use() refuses versions of PyTorch that it does not know. docs/python.md has all rules.
"""

from __future__ import annotations

try:
    import torch.distributed.tensor  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"meshift.torch needs PyTorch 2.6 or later (pip install 'meshift[torch]'): {error}"
    ) from error

from meshift.torch._agreement import Disagreement
from meshift.torch._api import plan_of, redistribute
from meshift.torch._use import use

__all__ = ["Disagreement", "plan_of", "redistribute", "use"]
