"""Views of pieces, against NumPy."""

import math
import random

import numpy as np
import pytest

from harness import torch
from meshift.program import SPACE_SOURCE, SPACE_TARGET, SPACE_WORKSPACE, Copy, Location
from meshift.torch._pieces import Memory, contiguous_strides, is_contiguous

SHAPES = [(), (3,), (4, 6), (1, 5, 1), (2, 3, 4), (0, 3)]


def pieces_of(*shapes):
    """Source, target and workspace, each after seven other elements of its storage."""
    made = [None]
    for i, shape in enumerate(shapes):
        count = math.prod(shape)
        flat = torch.arange(7 + count, dtype=torch.float32) + 1000 * i
        made.append(flat[7:].view(shape))
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_a_part_is_flat_and_begins_at_its_offset(shape):
    pieces = pieces_of(shape, (5,), (4,))
    memory = Memory([(), shape, (5,), (4,)], 4)
    count = math.prod(shape)
    for first in range(count + 1):
        for last in range(first, count + 1):
            part = memory.part(Location(SPACE_SOURCE, 4 * first), last - first)
            want = pieces[SPACE_SOURCE].reshape(-1)[first:last]
            assert part.view(pieces).shape == (last - first,) and part.size == last - first
            assert torch.equal(part.view(pieces), want)


def test_a_part_of_a_source_with_odd_strides_is_flat():
    memory = Memory([(), (1,), (1,), (0,)], 4)
    pieces = [None, torch.arange(9.0)[4::3][:1], torch.zeros(1), torch.zeros(0)]
    part = memory.part(Location(SPACE_SOURCE, 0), 1).view(pieces)
    assert part.stride() == (1,) and part.item() == 4


def test_no_view_is_made_of_a_whole_piece():
    pieces = pieces_of((4, 6), (4, 6), (24,))
    memory = Memory([(), (4, 6), (4, 6), (24,)], 4)
    source, target = Location(SPACE_SOURCE, 0), Location(SPACE_TARGET, 0)
    for shape in [(24,), (4, 6), (2, 12)]:
        strides = contiguous_strides(shape)
        dst, src = memory.copy(Copy(source, target, shape, strides, strides))
        assert dst(pieces) is pieces[SPACE_TARGET] and src(pieces) is pieces[SPACE_SOURCE]
    assert memory.part(Location(SPACE_WORKSPACE, 0), 24).view(pieces) is pieces[SPACE_WORKSPACE]


def boxes(rng, shape):
    """A random box in a piece of this shape: its first element and its sizes."""
    size = [rng.randint(0 if rng.random() < 0.1 else 1, n) if n else 0 for n in shape]
    return [rng.randint(0, n - m) for n, m in zip(shape, size)], size


def test_copies_move_boxes():
    rng = random.Random(3)
    for _ in range(500):
        shape = rng.choice(SHAPES)
        first, size = boxes(rng, shape)
        # The target has the box alone, or it has the source's shape.
        target = tuple(size) if rng.random() < 0.5 else shape
        at = first if target == shape else [0] * len(size)
        pieces = pieces_of(shape, target, (3,))
        memory = Memory([(), shape, target, (3,)], 4)
        strides = [contiguous_strides(shape), contiguous_strides(target)]
        begins = [0, 0]
        if 0 not in size:
            begins = [sum(map(math.prod, zip(i, j))) for i, j in zip((first, at), strides)]
        copy = Copy(
            Location(SPACE_SOURCE, 4 * begins[0]),
            Location(SPACE_TARGET, 4 * begins[1]),
            tuple(size),
            *strides,
        )
        want = pieces[SPACE_TARGET].numpy().copy()
        box = tuple(slice(i, i + n) for i, n in zip(at, size))
        taken = tuple(slice(i, i + n) for i, n in zip(first, size))
        want[box] = pieces[SPACE_SOURCE].numpy()[taken]
        dst, src = memory.copy(copy)
        dst(pieces).copy_(src(pieces))
        assert np.array_equal(pieces[SPACE_TARGET].numpy(), want)


def test_contiguous_is_what_torch_says():
    for shape in SHAPES:
        if 0 not in shape:
            strides = torch.empty(shape).stride()
            assert contiguous_strides(shape) == strides and is_contiguous(shape, strides)
    assert not is_contiguous((4, 6), (1, 4)) and is_contiguous((1, 6), (99, 1))
