"""The code on DTensors in README.md and docs/python.md runs, on a single rank."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not there")
FOLDER = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
    "page, opens, result",
    [("README.md", "```python\n", "replicated"), ("docs/python.md", "```python torch\n", "whole")],
)
def test_code(page, opens, result, capsys):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    text = (FOLDER / page).read_text(encoding="utf-8")
    (code,) = re.findall(opens + r"(.*?)```", text, re.S)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        weight = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0), Shard(1)]).requires_grad_()
        scope = {
            "gradient": DTensor.from_local(torch.ones(4), mesh, [Partial(), Partial()]),
            "batch": distribute_tensor(torch.ones(4, 4), mesh, [Shard(0), Shard(0)]),
            "model": lambda batch: batch @ weight,
        }
        exec(code, scope)
        scope["loss"].backward() if weight.grad is None else None
    finally:
        dist.destroy_process_group()
    assert scope[result].placements == (Replicate(), Replicate())
    assert weight.grad is not None
    assert "print" not in code or "P,P -> R,R" in capsys.readouterr().out
