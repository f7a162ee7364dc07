"""Programs: the instructions of one rank for a plan, for executors.

A program uses three pieces of memory: the rank's source, its target, and a workspace of
`workspace_bytes`, aligned to 16 bytes. Its instructions are executed in order. An instruction with
a group is a collective call: every member of the group has it in its own program. docs/c.md says
what each instruction does.

Nothing is run here. Plan.program() makes programs; its errors are those of meshift_plan_lower
(meshift/c.h). A program cannot be pickled.
"""

from __future__ import annotations

from ctypes import byref

from meshift import _c
from meshift._record import Immutable, Record, put

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Sequence

SPACE_SOURCE, SPACE_TARGET, SPACE_WORKSPACE = 1, 2, 3


class Location(Record):
    """`offset` bytes after the start of a piece: 1 source, 2 target, 3 workspace."""

    __slots__ = ("space", "offset")

    space: int
    offset: int


class Group(Record):
    """Ranks that make collective calls together. Fields are those of meshift_program_group."""

    __slots__ = ("mesh", "mesh_dims", "ranks", "member", "number", "one_channel")

    mesh: int
    mesh_dims: tuple[int, ...]
    ranks: tuple[int, ...]
    member: int
    number: int
    one_channel: bool


class Copy(Record):
    """A copy of a box of elements. Strides are in elements."""

    __slots__ = ("src", "dst", "shape", "src_strides", "dst_strides")

    src: Location
    dst: Location
    shape: tuple[int, ...]
    src_strides: tuple[int, ...]
    dst_strides: tuple[int, ...]


class Message(Record):
    """`count` contiguous elements, to or from member `peer` of the instruction's group."""

    __slots__ = ("peer", "at", "count")

    peer: int
    at: Location
    count: int


class Instruction(Record):
    """An instruction, with the fields of meshift_instruction. dtype, to_dtype and op are names, or
    None.

    `src` and `dst` are None if the instruction does not use them. `counts` is () if all blocks have
    `count` elements.
    """

    __slots__ = (
        "kind",
        "step",
        "group",
        "src",
        "dst",
        "count",
        "dtype",
        "to_dtype",
        "op",
        "divisor",
        "op_block",
        "blocks",
        "block_bytes",
        "counts",
        "copies",
        "sends",
        "recvs",
    )

    kind: str
    step: int
    group: int
    src: Location | None
    dst: Location | None
    count: int
    dtype: str | None
    to_dtype: str | None
    op: str | None
    divisor: int
    op_block: int
    blocks: int
    block_bytes: int
    counts: tuple[int, ...]
    copies: tuple[Copy, ...]
    sends: tuple[Message, ...]
    recvs: tuple[Message, ...]


class Program(Immutable):
    """The instructions of one rank, made by `Plan.program`. Immutable."""

    __slots__ = (
        "_handle",
        "rank",
        "workspace_bytes",
        "source_dtype",
        "target_dtype",
        "source_bytes",
        "target_bytes",
        "groups",
        "instructions",
    )

    _handle: _c.Handle
    rank: int
    workspace_bytes: int
    source_dtype: str
    """The dtype of the local tensor. f4e2m1 is given as bytes: "u8"."""
    target_dtype: str
    source_bytes: int
    """The bytes of the elements, without gaps between them."""
    target_bytes: int
    groups: tuple[Group, ...]
    instructions: tuple[Instruction, ...]

    def __init__(self) -> None:
        raise TypeError("programs are made by Plan.program()")

    @property
    def text(self) -> str:
        """One line per group and per instruction."""
        return _c.text("meshift_program_text", self._handle)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Program of rank {self.rank}: {len(self.instructions)} instructions>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Program cannot be pickled: pickle its plan, and make it again")


def lower(
    plan: _c.Handle,
    rank: int,
    source_strides: Sequence[int] | None,
    target_strides: Sequence[int] | None,
    one_buffer: bool,
    consume_source: bool,
) -> Program:
    """Lowers a plan to the program of a rank."""
    options = _c.ProgramOptions.make(
        one_buffer=bool(one_buffer), consume_source=bool(consume_source)
    )
    if source_strides is not None:
        options.source_strides = _c.int64s("source_strides", source_strides)
    if target_strides is not None:
        options.target_strides = _c.int64s("target_strides", target_strides)
    handle = _c.make("program", "meshift_plan_lower", plan, rank, byref(options))
    info = _c.fill(_c.ProgramInfo, "meshift_program_get_info", handle)
    program = Program.__new__(Program)
    put(
        program,
        _handle=handle,
        rank=info.rank,
        workspace_bytes=info.workspace_bytes,
        source_dtype=_c.name_of("dtype", info.source_dtype),
        target_dtype=_c.name_of("dtype", info.target_dtype),
        source_bytes=info.source_bytes,
        target_bytes=info.target_bytes,
        groups=tuple(_group(handle, i) for i in range(info.num_groups)),
        instructions=tuple(_instruction(handle, i) for i in range(info.num_instructions)),
    )
    return program


def _group(program: _c.Handle, number: int) -> Group:
    group = _c.fill(_c.ProgramGroup, "meshift_program_get_group", program, number)
    return Group(
        group.mesh,
        tuple(group.mesh_dims[: group.num_mesh_dims]),
        tuple(group.ranks[: group.num_ranks]),
        group.member,
        group.number,
        bool(group.one_channel),
    )


def _instruction(program: _c.Handle, number: int) -> Instruction:
    at = _c.fill(_c.Instruction, "meshift_program_get_instruction", program, number)
    return Instruction(
        _c.name_of("instruction_kind", at.kind),
        at.step,
        at.group,
        _location(at.src),
        _location(at.dst),
        at.count,
        _c.name_of("dtype", at.dtype),
        _c.name_of("dtype", at.to_dtype),
        _c.name_of("op", at.op),
        at.divisor,
        at.op_block,
        at.blocks,
        at.block_bytes,
        tuple(at.counts[: at.num_counts]),
        tuple(_copy(program, at.first_copy + i) for i in range(at.num_copies)),
        tuple(_message(program, at.first_send + i) for i in range(at.num_sends)),
        tuple(_message(program, at.first_recv + i) for i in range(at.num_recvs)),
    )


def _location(at: _c.Location) -> Location | None:
    return Location(at.space, at.offset) if at.space else None


def _copy(program: _c.Handle, number: int) -> Copy:
    copy = _c.fill(_c.Copy, "meshift_program_get_copy", program, number)
    dims = copy.num_dims
    return Copy(
        _location(copy.src),
        _location(copy.dst),
        tuple(copy.shape[:dims]),
        tuple(copy.src_strides[:dims]),
        tuple(copy.dst_strides[:dims]),
    )


def _message(program: _c.Handle, number: int) -> Message:
    message = _c.fill(_c.Message, "meshift_program_get_message", program, number)
    return Message(message.peer, _location(message.at), message.count)
