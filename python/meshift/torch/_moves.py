"""Removes copies from a program, and makes all_gathers run in place.

    instructions = without_moves(program.instructions, program.groups, width=4)

A copy is removed if it only moves one contiguous part of the source to the workspace; later
instructions then read the source. It stays if one of them reads other bytes together with it. A
reduction before an all_gather writes its result directly into its block of the gathered value, if
no other instruction reads the result, and none uses that block in between. All other instructions
stay. Results have the same bits.

The caller guarantees, unchecked: all elements have `width` bytes, no stride is negative, no
instruction writes to the source, and source, target and workspace do not overlap.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence, TypeVar

from meshift._record import Record
from meshift.program import (
    SPACE_SOURCE,
    SPACE_WORKSPACE,
    Group,
    Instruction,
    Location,
    Message,
)
from meshift.torch._pieces import is_contiguous

R = TypeVar("R", bound=Record)
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce_in_order")


class Span(NamedTuple):
    """Bytes [begin, end) of a piece."""

    space: int
    begin: int
    end: int

    def meets(self, other: Span) -> bool:
        return self.space == other.space and self.begin < other.end and other.begin < self.end

    def holds(self, other: Span) -> bool:
        return self.space == other.space and self.begin <= other.begin and other.end <= self.end


def without_moves(
    instructions: Sequence[Instruction], groups: Sequence[Group], width: int
) -> list[Instruction]:
    """`width`: bytes of an element."""
    spans = Spans(groups, width)
    result = list(instructions)
    i = 0
    while i < len(result):
        rest = _reading_the_source(spans, result[i], result[i + 1 :])
        if rest is None:
            i += 1
        else:
            result[i:] = rest
    for i, at in enumerate(result):
        if at.kind == "all_gather":
            _gather_in_place(spans, result, i)
    return result


class Spans:
    """The bytes that an instruction reads and writes."""

    def __init__(self, groups: Sequence[Group], width: int) -> None:
        self._groups = groups
        self._width = width

    def reads(self, at: Instruction) -> list[Span]:
        if at.kind == "copy":
            return [self.of_box(copy.src, copy.shape, copy.src_strides) for copy in at.copies]
        if at.kind == "send_recv":
            return [self._of(message.at, message.count) for message in at.sends]
        if at.src is None:
            return []
        if at.kind == "all_gather":
            return [self._of(at.src, self._blocks(at)[self._groups[at.group].member])]
        if at.kind == "reduce_scatter":
            return [self._of(at.src, sum(self._blocks(at)))]
        if at.kind == "reduce_in_order":
            before_last = (at.blocks - 1) * at.block_bytes
            return [self._of(at.src, before_last // self._width + at.count)]
        return [self._of(at.src, at.count)]

    def writes(self, at: Instruction) -> list[Span]:
        if at.kind == "copy":
            return [self.of_box(copy.dst, copy.shape, copy.dst_strides) for copy in at.copies]
        if at.kind == "send_recv":
            return [self._of(message.at, message.count) for message in at.recvs]
        assert at.dst is not None
        if at.kind == "fill_zero":
            return [Span(at.dst.space, at.dst.offset, at.dst.offset + at.count)]
        if at.kind == "all_gather":
            return [self._of(at.dst, sum(self._blocks(at)))]
        if at.kind == "reduce_scatter":
            return [self._of(at.dst, self._blocks(at)[self._groups[at.group].member])]
        return [self._of(at.dst, at.count)]

    def own_block(self, at: Instruction) -> Span:
        """This rank's block in the result of an all_gather."""
        assert at.dst is not None
        blocks, member = self._blocks(at), self._groups[at.group].member
        begin = at.dst.offset + sum(blocks[:member]) * self._width
        return Span(at.dst.space, begin, begin + blocks[member] * self._width)

    def of_box(self, at: Location, shape: Sequence[int], strides: Sequence[int]) -> Span:
        """The smallest span with all elements of the box; strides are not negative."""
        if 0 in shape:
            return self._of(at, 0)
        return self._of(at, 1 + sum((n - 1) * stride for n, stride in zip(shape, strides)))

    def _of(self, at: Location, count: int) -> Span:
        return Span(at.space, at.offset, at.offset + count * self._width)

    def _blocks(self, at: Instruction) -> list[int]:
        return list(at.counts) or [at.count] * len(self._groups[at.group].ranks)


def _reading_the_source(
    spans: Spans, at: Instruction, rest: Sequence[Instruction]
) -> Optional[list[Instruction]]:
    """The instructions after `at`, rewritten to work without it, if `at` only copies a part of the
    source to the workspace; else None."""
    if at.kind != "copy" or len(at.copies) != 1:
        return None
    (copy,) = at.copies
    if (copy.src.space, copy.dst.space) != (SPACE_SOURCE, SPACE_WORKSPACE):
        return None
    if not is_contiguous(copy.shape, copy.src_strides):
        return None
    if copy.src_strides != copy.dst_strides:
        return None
    (copied,) = spans.writes(at)
    overwritten: list[Span] = []
    result = []
    for one in rest:
        for span in spans.reads(one):
            if not span.meets(copied) or any(new.holds(span) for new in overwritten):
                continue
            if overwritten or not copied.holds(span):
                return None  # it also reads other bytes
        if not overwritten:
            one = _redirected(one, spans, copied, copy.src)
        overwritten += [span for span in spans.writes(one) if span.meets(copied)]
        result.append(one)
    return result


def _gather_in_place(spans: Spans, instructions: list[Instruction], i: int) -> None:
    """Makes a reduction write its result to the place where a later all_gather needs it."""
    at = instructions[i]
    (src,), own = spans.reads(at), spans.own_block(at)
    if src.space != SPACE_WORKSPACE or src.meets(spans.writes(at)[0]) or src.begin == src.end:
        return
    if any(span.meets(src) for later in instructions[i + 1 :] for span in spans.reads(later)):
        return
    for j in range(i - 1, -1, -1):
        before = instructions[j]
        reads, writes = spans.reads(before), spans.writes(before)
        if any(span.meets(own) for span in reads + writes):
            return
        if any(span.meets(src) for span in writes):
            if before.kind in _REDUCTIONS and writes == [src]:
                place = Location(own.space, own.begin)
                instructions[j] = _changed(before, dst=place)
                instructions[i] = _changed(at, src=place)
            return
        if any(span.meets(src) for span in reads):
            return


def _redirected(at: Instruction, spans: Spans, copied: Span, source: Location) -> Instruction:
    """The instruction reading the source instead of its copy."""

    def moved(place: Location, span: Span) -> Location:
        if not span.meets(copied):
            return place
        return Location(source.space, place.offset - copied.begin + source.offset)

    reads = spans.reads(at)
    if at.kind == "copy":
        copies = tuple(
            _changed(copy, src=moved(copy.src, span)) for copy, span in zip(at.copies, reads)
        )
        return _changed(at, copies=copies)
    if at.kind == "send_recv":
        sends = tuple(
            Message(one.peer, moved(one.at, span), one.count) for one, span in zip(at.sends, reads)
        )
        return _changed(at, sends=sends)
    return at if at.src is None else _changed(at, src=moved(at.src, reads[0]))


def _changed(record: R, **fields: object) -> R:
    names = type(record).__slots__
    return type(record)(*(fields.get(name, getattr(record, name)) for name in names))
