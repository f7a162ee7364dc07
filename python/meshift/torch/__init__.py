"""Redistributes DTensors by Meshift's plans, on any backend of torch.distributed.

    import meshift.torch
    replicated = meshift.torch.redistribute(dtensor, [Replicate(), Replicate()])

    with meshift.torch.use(promise="ordered"):     # DTensor's own redistributions too
        loss = model(batch).sum()

Every rank of the mesh makes the same calls in the same order. The first call for a pair of
shardings makes the plan, compares it with all other ranks, creates the groups that it needs, and
compiles it; later calls reuse the result. docs/python.md has the rules.
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
