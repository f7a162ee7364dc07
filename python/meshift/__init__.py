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

from meshift import _c
from meshift.errors import MeshiftError, VerificationError
from meshift.mesh import DeviceMesh
from meshift.plans import Plan, Step, plan, verify
from meshift.program import Program
from meshift.sharding import Box, Sharding, shards

__version__: str = _c.lib.meshift_version().decode()

__all__ = [
    "Box",
    "DeviceMesh",
    "MeshiftError",
    "Plan",
    "Program",
    "Sharding",
    "Step",
    "VerificationError",
    "plan",
    "shards",
    "verify",
]
