"""Programs."""

import pytest
from meshift import Program, Sharding, plan
from meshift.program import Copy, Location, Message

A = Sharding.parse("f32[8,4] on a=2,b=2 as P,S(0)")
B = A.with_placements("R,S(1)")


def test_what_a_program_has():
    program = plan(A, B).program(1)
    assert program.rank == 1
    assert (program.source_dtype, program.target_dtype) == ("f32", "f32")
    assert (program.source_bytes, program.target_bytes) == (64, 64)
    assert program.workspace_bytes >= 0
    assert program.text.startswith("rank 1: ")
    assert str(program) == program.text
    # A line for the program, each group, and each instruction.
    lines = 1 + len(program.groups) + len(program.instructions)
    assert len(program.text.splitlines()) == lines
    assert repr(program) == f"<Program of rank 1: {len(program.instructions)} instructions>"


def test_an_all_reduce():
    source = Sharding.parse("bf16[6] on a=2,b=2@7,5,3,1 as P(avg),S(0)")
    program = plan(source, source.with_placements("R,S(0)")).program(5)
    (group,) = program.groups
    assert group.mesh == 0
    assert group.mesh_dims == (0,)
    assert group.ranks == (1, 5)
    assert group.member == 1
    assert group.number == 1
    assert group.one_channel is False
    reduce = program.instructions[-1]
    assert reduce.kind == "all_reduce"
    assert reduce.group == 0
    assert reduce.step == 0
    assert reduce.count == 3
    assert (reduce.dtype, reduce.to_dtype, reduce.op, reduce.divisor) == ("bf16", "bf16", "avg", 2)
    assert reduce.src == Location(1, 0)
    assert reduce.dst == Location(2, 0)
    assert (reduce.counts, reduce.copies, reduce.sends, reduce.recvs) == ((), (), (), ())


def test_copies_messages_and_sums_in_order():
    program = plan(A, B, reproducibility="ordered").program(2)
    kinds = [one.kind for one in program.instructions]
    assert "send_recv" in kinds
    assert "reduce_in_order" in kinds
    for one in program.instructions:
        if one.kind == "send_recv":
            assert one.group >= 0
            assert one.src is None
            assert all(isinstance(m, Message) for m in one.sends + one.recvs)
            members = len(program.groups[one.group].ranks)
            assert all(0 <= m.peer < members and m.count > 0 for m in one.sends + one.recvs)
        if one.kind == "copy":
            assert one.copies
            assert all(isinstance(copy, Copy) for copy in one.copies)
        if one.kind == "reduce_in_order":
            assert one.blocks == 2
            assert one.block_bytes > 0


def test_blocks_of_several_sizes():
    source = Sharding.parse("f32[20] on a=3 as S(0){11,2,7}")
    program = plan(source, source.with_placements("R"), ragged_sizes="sum").program(0)
    (gather,) = [one for one in program.instructions if one.kind == "all_gather"]
    assert gather.counts == (11, 2, 7)


def test_strides():
    made = plan(A, A.with_placements("R,S(0)"))
    program = made.program(0, source_strides=[1, 4], target_strides=(8, 1))
    copies = [copy for one in program.instructions for copy in one.copies]
    assert any((1, 4) == copy.src_strides or 8 in copy.dst_strides for copy in copies)
    assert program.text != made.program(0).text


def test_buffers():
    made = plan(A, B)
    assert made.program(0, one_buffer=True).rank == 0
    assert made.program(0, consume_source=True).workspace_bytes <= made.program(0).workspace_bytes


def test_a_rank_of_neither_mesh():
    program = plan(A, B).program(77)
    assert program.instructions == ()
    assert program.source_bytes == 0
    assert all(group.member == -1 for group in program.groups)


def test_f4e2m1_is_seen_as_bytes():
    source = Sharding.parse("f4e2m1[8,4] on a=2 as S(0)")
    program = plan(source, source.with_placements("R")).program(0)
    assert program.source_dtype == "u8"
    assert program.source_bytes == 8


def test_wrong_arguments():
    made = plan(A, B)
    with pytest.raises(ValueError, match="-1"):
        made.program(-1)
    with pytest.raises(TypeError, match="rank"):
        made.program(None)
    with pytest.raises(ValueError, match="source_strides has length 1; expected 2, one for each"):
        made.program(0, source_strides=[1])
    with pytest.raises(ValueError, match="overlap"):
        made.program(0, target_strides=[-1, 1])
    with pytest.raises(TypeError, match="source_strides"):
        made.program(0, source_strides=3)
    with pytest.raises(TypeError, match="target_strides\\[1\\] must be an int"):
        made.program(0, target_strides=[1, 1.5])
    with pytest.raises(TypeError, match="Plan.program"):
        Program()
