"""Ranks that disagree get an error that names both plans; none of them waits forever."""

import time

import pytest

import oracle
from harness import dtensor, function, mesh_of, processes, pytorch


def ask(rank, shapes, targets, subject, absent=None, warm=False):
    """What this rank's redistribution says, and after how many seconds."""
    mesh = mesh_of((2, 2))
    if warm:
        function(dtensor(oracle.full_tensor((4, 6)), mesh, "S(0),S(0)", (16, 6)), "S(1),S(0)")
    if rank == absent:
        time.sleep(12)
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


@pytest.mark.parametrize("warm", [False, True])
def test_a_rank_that_never_comes_is_a_time_out(warm):
    said = processes(
        4, ask, [(16, 6)] * 4, ["R,R"] * 4, function, 3, warm, group_timeout=5, timeout=60
    )
    for text, seconds in said[:3]:
        assert text != "done" and seconds < 11, said
        lower = text.lower()
        assert any(word in lower for word in ("timed out", "timeout", "time-out", "connection")), said
