"""Meshift plans, proves and runs redistributions of sharded tensors.

    import meshift

    mesh = meshift.DeviceMesh("dp=2,tp=4")
    a = meshift.Sharding("bf16[64,16]", mesh, "P,R")
    b = a.with_placements("R,R")
    p = meshift.plan(a, b)
    meshift.verify(p)
    print(p.text)

meshift.local runs plans on NumPy arrays, meshift.torch on DTensors. docs/python.md is the guide.
"""

from __future__ import annotations

from meshift import _c
from meshift.errors import MeshiftError, VerificationError
from meshift.explanation import Alternative, Explanation, explain
from meshift.mesh import DeviceMesh
from meshift.model import ModelPlan, plan_model
from meshift.plans import Plan, Step, plan, verify
from meshift.program import Program
from meshift.sharding import Box, Sharding, shards
from meshift.topology import Topology

__version__: str = _c.lib.meshift_version().decode()

__all__ = [
    "Alternative",
    "Box",
    "DeviceMesh",
    "Explanation",
    "MeshiftError",
    "ModelPlan",
    "Plan",
    "Program",
    "Sharding",
    "Step",
    "Topology",
    "VerificationError",
    "explain",
    "plan",
    "plan_model",
    "shards",
    "verify",
]


def __getattr__(name: str) -> object:
    """Imports meshift.local and meshift.torch on first use, because both are slow to import."""
    if name in ("local", "torch"):
        import importlib

        return importlib.import_module(f"meshift.{name}")
    raise AttributeError(f"module 'meshift' has no attribute {name!r}")
