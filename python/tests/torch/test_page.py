"""The code on DTensors in docs/python.md runs, on a process group without other ranks."""

import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not there")
PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_code(capsys):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
    from torch.testing._internal.distributed.fake_pg import FakeStore

    (code,) = re.findall(r"```python torch\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
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
    finally:
        dist.destroy_process_group()
    assert scope["whole"].placements == tuple(scope["replicas"])
    assert weight.grad is not None
    assert "P,P -> R,R" in capsys.readouterr().out
