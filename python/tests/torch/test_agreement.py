"""Ranks that disagree get an error that names both plans; none of them waits forever."""

import time

import pytest

import oracle
from harness import dtensor, function, mesh_of, processes, pytorch


def ask(rank, shapes, targets, subject, absent=None, before=0):
    """The error of this rank's redistribution after a number of calls that agree, and the seconds
    that it took."""
    mesh = mesh_of((2, 2))
    for i in range(before):
        agreed = dtensor(oracle.full_tensor((4, 6)), mesh, "S(0),S(0)", (16, 6))
        function(agreed, ("R,R", "S(1),S(1)")[i % 2])
    if rank == absent:
        time.sleep(9)
        return "absent", 0.0
    shape = shapes[rank]
    local = oracle.full_tensor((shape[0] // 4, *shape[1:]))
    tensor = dtensor(local, mesh, "S(0),S(0)", shape)
    begin = time.monotonic()
    try:
        subject(tensor, targets[rank])
        said = "done"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    return said, time.monotonic() - begin


OTHERS = [
    ("one rank", [(16, 6)] * 4, ["R,R", "R,R", "S(1),S(1)", "R,R"], ("R,R", "S(1),S(1)")),
    ("halves", [(16, 6)] * 4, ["R,S(0)", "R,S(0)", "S(0),R", "S(0),R"], ("R,S(0)", "S(0),R")),
    ("shape", [(16, 6), (16, 6), (16, 6), (32, 6)], ["R,R"] * 4, ("[16,6]", "[32,6]")),
]


@pytest.mark.parametrize("subject", [function, pytorch])
@pytest.mark.parametrize("name,shapes,targets,named", OTHERS)
def test_a_mismatch_names_both_plans_on_all_ranks(name, shapes, targets, named, subject):
    use = "replicas" if subject is pytorch else None
    said = processes(4, ask, shapes, targets, subject, group_timeout=10, timeout=60, use=use)
    for text, seconds in said:
        assert text != "done" and all(part in text.replace(" ", "") for part in named), said
        assert seconds < 15, said


def test_ranks_that_agree_are_done():
    said = processes(4, ask, [(16, 6)] * 4, ["R,R"] * 4, function)
    assert [text for text, _ in said] == ["done"] * 4


@pytest.mark.parametrize("before", [2, 20])
@pytest.mark.parametrize("use", [None, "replicas"])
def test_plans_that_were_used_before_can_mismatch_too(use, before):
    # After the first calls, ranks whose peers are in another call time out.
    targets = ["R,R", "R,R", "S(1),S(1)", "S(1),S(1)"]
    subject = function if use is None else pytorch
    shapes = [(16, 6)] * 4
    said = processes(4, ask, shapes, targets, subject, None, before, group_timeout=5, use=use)
    for text, seconds in said:
        assert "different plans" in text and "R,R" in text and "S(1),S(1)" in text, said
        assert seconds < 12, said


def test_a_local_tensor_of_a_wrong_shape_is_an_error_on_all_ranks():
    shapes = [(16, 6), (16, 6), (20, 6), (16, 6)]
    said = processes(4, misfit, shapes, group_timeout=10)
    assert all("(5, 6)" in text and "(4, 6)" in text for text in said), said


def misfit(rank, shapes):
    local = oracle.full_tensor((shapes[rank][0] // 4, 6))
    tensor = dtensor(local, mesh_of((2, 2)), "S(0),S(0)", (16, 6))
    with pytest.raises(Exception) as error:
        function(tensor, "R,R")
    return str(error.value)


@pytest.mark.parametrize("before", [0, 100])
def test_a_rank_that_never_comes_is_a_time_out(before):
    said = processes(
        4, ask, [(16, 6)] * 4, ["R,R"] * 4, function, 3, before, group_timeout=3, timeout=60
    )
    for text, seconds in said[:3]:
        assert text != "done" and seconds < 10, said
        lower = text.lower()
        assert any(
            word in lower for word in ("timed out", "timeout", "time-out", "connection")
        ), said


def named_alike(rank):
    # Other ranks see one mesh: the calls of both are counted together.
    from torch.distributed.device_mesh import init_device_mesh

    results = []
    for names in [None, ("dp", "tp"), ("x", "y")]:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=names)
        for after in ("R,R", "S(1),S(1)"):
            tensor = dtensor(oracle.full_tensor((4, 6)), mesh, "S(0),S(0)", (16, 6))
            results.append(tuple(function(tensor, after).to_local().shape))
    return results


def test_meshes_of_the_same_ranks_agree_together():
    for shapes in processes(4, named_alike):
        assert [shape[0] for shape in shapes] == [16] * 6, shapes


def retried(rank):
    """A call that one rank leaves early, then another of the same plan."""
    mesh = mesh_of((4,))
    value = oracle.full_tensor((1 << 12, 64))  # 1 MiB: an exchange of parts, and one of sums
    tensor = dtensor(value * (rank + 1), mesh, "P", value.shape)
    for _ in range(5):  # later ones are not compared before they run
        function(tensor, "R")
    from meshift.torch import _messages

    combine = _messages.combine
    if rank == 0:

        def fails(*args):
            raise MemoryError("none left")

        _messages.combine = fails
    said = []
    for _ in range(2):
        try:
            result = function(tensor, "R").to_local().numpy()
            said.append("right" if (result == value * 10).all() else "wrong")
        except MemoryError:
            said.append("memory")
        except Exception as error:
            said.append(type(error).__name__)
        _messages.combine = combine
    return said


def test_a_call_takes_nothing_that_another_has_left_over():
    for said in processes(4, retried, group_timeout=5, timeout=60):
        assert "wrong" not in said, said
