"""Programs without moves, and the order of receives."""

from meshift import Sharding
from meshift.program import Copy, Group, Instruction, Location, Message
from meshift.torch._moves import without_moves
from meshift.torch._pieces import Step, in_order
from meshift.torch._redistribute import Settings

SOURCE, TARGET, WORKSPACE = 1, 2, 3
GROUPS = (Group(0, (0,), (0, 1), 1, 1, False),)


def instruction(kind, src=None, dst=None, count=0, **fields):
    values = dict.fromkeys(Instruction.__slots__, 0)
    values.update(counts=(), copies=(), sends=(), recvs=(), kind=kind, dtype="f32", op="sum")
    values.update(src=src and Location(*src), dst=dst and Location(*dst), count=count, **fields)
    return Instruction(*(values[name] for name in Instruction.__slots__))


def copy(src, dst, shape, src_strides=None, dst_strides=None):
    strides = []
    for n in reversed(shape):
        strides.insert(0, strides[0] * shape[len(shape) - len(strides)] if strides else 1)
    box = Copy(Location(*src), Location(*dst), shape, src_strides or tuple(strides),
               dst_strides or tuple(strides))  # fmt: skip
    return instruction("copy", copies=(box,))


SLICE = copy((SOURCE, 16), (WORKSPACE, 0), (4,))


def test_a_slice_is_read_in_the_source():
    reduce = instruction("all_reduce", (WORKSPACE, 0), (TARGET, 0), 4)
    (one,) = without_moves([SLICE, reduce], GROUPS, 4)
    assert one.kind == "all_reduce"
    assert (one.src, one.dst) == (Location(SOURCE, 16), Location(TARGET, 0))


def test_parts_of_a_slice_are_read_in_the_source():
    sends = (Message(0, Location(WORKSPACE, 8), 1), Message(0, Location(WORKSPACE, 64), 1))
    send = instruction("send_recv", sends=sends)
    last = copy((WORKSPACE, 4), (TARGET, 0), (3,))
    first, second = without_moves([SLICE, send, last], GROUPS, 4)
    assert [one.at for one in first.sends] == [Location(SOURCE, 24), Location(WORKSPACE, 64)]
    assert second.copies[0].src == Location(SOURCE, 20)


def test_a_reduction_in_place_reads_the_source_once():
    reduce = instruction("all_reduce", (WORKSPACE, 0), (WORKSPACE, 0), 4)
    last = copy((WORKSPACE, 0), (TARGET, 0), (4,))
    first, second = without_moves([SLICE, reduce, last], GROUPS, 4)
    assert (first.src, first.dst) == (Location(SOURCE, 16), Location(WORKSPACE, 0))
    assert second == last


def test_slices_that_stay():
    strided = copy((SOURCE, 0), (WORKSPACE, 0), (2, 2), (4, 1))
    from_target = copy((TARGET, 16), (WORKSPACE, 0), (4,))
    reduce = instruction("all_reduce", (WORKSPACE, 0), (TARGET, 0), 4)
    # It also reads bytes beside the slice.
    wide = instruction("all_reduce", (WORKSPACE, 0), (TARGET, 0), 5)
    # A part is overwritten before all is read.
    zeros = instruction("fill_zero", dst=(WORKSPACE, 4), count=4)
    for stays in ([strided, reduce], [from_target, reduce], [SLICE, wide], [SLICE, zeros, reduce]):
        assert without_moves(stays, GROUPS, 4) == stays


def test_a_reduction_writes_where_the_gather_wants_it():
    scatter = instruction("reduce_scatter", (SOURCE, 0), (WORKSPACE, 0), 4)
    gather = instruction("all_gather", (WORKSPACE, 0), (TARGET, 0), 4)
    first, second = without_moves([scatter, gather], GROUPS, 4)
    assert first.dst == second.src == Location(TARGET, 16)
    assert (first.src, second.dst) == (Location(SOURCE, 0), Location(TARGET, 0))


def test_gathers_that_stay():
    scatter = instruction("reduce_scatter", (SOURCE, 0), (WORKSPACE, 0), 4)
    gather = instruction("all_gather", (WORKSPACE, 0), (TARGET, 0), 4)
    read_again = copy((WORKSPACE, 8), (TARGET, 48), (1,))
    read_before = copy((WORKSPACE, 8), (WORKSPACE, 48), (1,))
    of_a_message = instruction("send_recv", recvs=(Message(0, Location(WORKSPACE, 0), 4),))
    in_the_way = copy((SOURCE, 0), (TARGET, 16), (4,))
    wider = instruction("all_reduce", (SOURCE, 0), (WORKSPACE, 0), 5)
    for stays in (
        [scatter, gather, read_again],
        [scatter, read_before, gather],
        [of_a_message, gather],
        [scatter, in_the_way, gather],
        [wider, gather],
        [gather],
    ):
        assert without_moves(stays, GROUPS, 4) == stays


def test_a_plan_with_both():
    source = Sharding.parse("f32[512,512] on a=2,b=2 as P,R")
    made = Settings().plan(source, source.with_placements("R,R"), "local")
    program = made.program(3)
    assert [step.op for step in made.steps] == ["slice", "all_reduce", "all_gather"]
    reduce, gather = without_moves(program.instructions, program.groups, 4)
    assert reduce.src == Location(SOURCE, 1 << 19)
    assert reduce.dst == gather.src == Location(TARGET, 1 << 19)


def test_receives_are_posted_as_early_as_can_be():
    def named(name):
        return lambda pieces, leave: name

    local = Step(named("local"), [(WORKSPACE, 0, 4)])
    first = Step(
        named("first"), [(WORKSPACE, 0, 8), (TARGET, 0, 4)], named("post 1"), [(WORKSPACE, 4, 8)]
    )
    far = Step(named("far"), [(TARGET, 4, 8)], named("post 2"), [(TARGET, 4, 8)])
    near = Step(named("near"), [(TARGET, 0, 4)], named("post 3"), [(TARGET, 0, 4)])
    anywhere = Step(named("anywhere"))
    last = Step(named("last"), [(SOURCE, 0, 4)], named("post 4"), [(WORKSPACE, 8, 9)])
    calls = in_order([local, first, far, near, anywhere, last])
    assert [call((), False) for call in calls] == [
        "post 1", "post 2", "local", "first", "post 3", "far", "near", "anywhere", "post 4", "last",
    ]  # fmt: skip
