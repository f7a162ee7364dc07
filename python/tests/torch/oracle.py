"""The reference: computes local tensors in NumPy from the definition of the placements, and checks
results.

Placements are text: `R`, `S(dim)`, `P` or `P(op)`, and `SS(dim,split_factor)` for PyTorch's
_StridedShard. A mesh is its shape; ranks are its row-major positions.
"""

import functools
import itertools
import json
import pathlib
import re

import numpy as np

MEASURED = pathlib.Path(__file__).resolve().parents[3] / "tests/data/torch_transitions.json"
COMBINE = {
    "sum": lambda parts: np.sum(parts, 0, dtype=parts[0].dtype),
    "avg": lambda parts: np.sum(parts, 0, dtype=parts[0].dtype) / len(parts),
    "min": lambda parts: np.min(parts, 0),
    "max": lambda parts: np.max(parts, 0),
    "product": lambda parts: np.prod(parts, 0, dtype=parts[0].dtype),
    "band": np.bitwise_and.reduce,
    "bor": np.bitwise_or.reduce,
    "bxor": np.bitwise_xor.reduce,
}


@functools.lru_cache(None)
def parse(text):
    """`S(0),P` as (("S", 0), ("P", "sum"))."""
    found = re.findall(r"(SS|S|R|P)(?:\(([^)]*)\))?(?:,|$)", text)
    return tuple(_placement(kind, inner) for kind, inner in found)


def _placement(kind, inner):
    if kind == "R":
        return ("R",)
    if kind == "P":
        return ("P", inner or "sum")
    return (kind, *map(int, inner.split(",")))


def cut(indices, parts):
    """Pieces of ceil(size / parts) indices each; the last ones may be short or empty."""
    piece = -(-len(indices) // parts)
    return [indices[piece * i : piece * (i + 1)] for i in range(parts)]


def local(full, mesh, text, coordinate, order=None):
    """The part of `full` that the rank at this coordinate holds.

    It is cut mesh dim by mesh dim, or in the given order of mesh dims, in which a strided shard is
    a plain one.
    """
    indices, placements = [np.arange(size) for size in full.shape], parse(text)
    for mesh_dim in order or range(len(mesh)):
        (kind, *where), size, i = placements[mesh_dim], mesh[mesh_dim], coordinate[mesh_dim]
        if kind == "S" or (kind == "SS" and order):
            dim = where[0]
            indices[dim] = cut(indices[dim], size)[i]
        elif kind == "SS":
            dim, split = where
            pieces = cut(indices[dim], split)
            indices[dim] = np.concatenate([cut(piece, size)[i] for piece in pieces])
    return full[np.ix_(*indices)] if indices else full


def coordinates(mesh):
    return list(itertools.product(*map(range, mesh)))


def dims_of(text, kind):
    """The mesh dims of this kind of placement."""
    return [i for i, placement in enumerate(parse(text)) if placement[0] == kind]


def flat(mesh, dims, coordinate):
    """The position among the ranks that differ only in `dims`, and their number."""
    sizes = [mesh[i] for i in dims]
    position = np.ravel_multi_index([coordinate[i] for i in dims], sizes) if dims else 0
    return int(position), int(np.prod(sizes, dtype=int))


def contributions(full, op, count, seed):
    """`count` arrays that `op` combines to exactly `full`, whose elements are small integers."""
    rng = np.random.default_rng(seed)
    parts = [rng.integers(-3, 4, full.shape).astype(full.dtype) for _ in range(count)]
    if full.dtype.kind == "c":
        parts = [part + 1j * rng.integers(-3, 4, full.shape).astype(full.dtype) for part in parts]
    if op in ("sum", "avg"):
        parts[-1] = full * (count if op == "avg" else 1) - sum(parts[:-1])
    elif op in ("min", "max"):
        sign = 1 if op == "min" else -1
        parts = [full + sign * np.abs(part) for part in parts]
        parts[rng.integers(count)] = full.copy()
    elif op == "product":
        signs = [np.sign(part) + (part == 0) for part in parts]
        parts = signs[:-1] + [full * COMBINE["product"](signs[:-1])] if count > 1 else [full]
    else:
        masks = [rng.integers(0, 100, full.shape).astype(full.dtype) for _ in range(count)]
        if op == "bxor":
            parts = masks[:-1] + [np.bitwise_xor.reduce([full, *masks[:-1]])]
        else:
            keep = {"band": lambda a, b: a | b, "bor": lambda a, b: a & b}[op]
            parts = [keep(full, mask) for mask in masks[:-1]] + [full]
    return [np.array(part, full.dtype, order="C") for part in parts]


def full_tensor(shape, dtype="float32", seed=0, integers=True):
    rng = np.random.default_rng(seed)
    if not integers:
        return np.array(rng.standard_normal(shape), dtype)
    return np.array(rng.integers(1, 60, shape), dtype)


class Source:
    """The source of each rank: its part of its contribution."""

    def __init__(self, full, mesh, text, seed=0, parts=None):
        self.mesh, self.text, self.dims = mesh, text, dims_of(text, "P")
        self.op = parse(text)[self.dims[0]][1] if self.dims else None
        count = flat(mesh, self.dims, [0] * len(mesh))[1]
        self.parts = parts or (contributions(full, self.op, count, seed) if self.op else [full])

    def local(self, coordinate):
        part = self.parts[flat(self.mesh, self.dims, coordinate)[0]]
        return local(part, self.mesh, self.text, coordinate)


def random_source(shape, mesh, text, seed, dtype="float32"):
    """Contributions of random floats: sums depend on the order of the additions."""
    count = flat(mesh, dims_of(text, "P"), [0] * len(mesh))[1]
    parts = [full_tensor(shape, dtype, seed + i, integers=False) for i in range(count)]
    return Source(parts[0], mesh, text, parts=parts)


def ordered_sum(parts):
    """A loop over the contributions in ascending order."""
    total = parts[0].copy()
    for part in parts[1:]:
        total = total + part
    return total


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def judge(full, mesh, text, locals_):
    """The first rank whose tensor is wrong, with the reason, or None.

    `locals_` are the tensors of all ranks in mesh order. Ranks that differ in a partial mesh dim
    hold contributions, which are combined first.
    """
    dims = dims_of(text, "P")
    op = parse(text)[dims[0]][1] if dims else None
    groups = {}
    for coordinate, held in zip(coordinates(mesh), locals_):
        key = tuple(i for dim, i in enumerate(coordinate) if dim not in dims)
        groups.setdefault(key, (coordinate, []))[1].append(held)
    for coordinate, held in groups.values():
        want = local(full, mesh, text, coordinate)
        if any(one.shape != want.shape for one in held):
            return f"{coordinate}: shapes {[one.shape for one in held]}, not {want.shape}"
        value = COMBINE[op](held) if op else held[0]
        if not np.array_equal(value, want, equal_nan=value.dtype.kind in "fc"):
            return f"{coordinate}: {value.ravel()[:8]}, not {want.ravel()[:8]}"
    return None


def replicas_differ(mesh, text, bits):
    """The first two ranks whose tensors must have equal bits and do not, or None."""
    dims, first = dims_of(text, "R"), {}
    for coordinate, held in zip(coordinates(mesh), bits):
        key = tuple(i for dim, i in enumerate(coordinate) if dim not in dims)
        seen_at, seen = first.setdefault(key, (coordinate, held))
        if seen != held:
            return seen_at, coordinate
    return None


def transitions():
    """The measured transitions."""
    return [
        (tuple(n for _, n in case["mesh"]), _shape(case["tensor"]), case["from"], case["to"])
        for case in json.loads(MEASURED.read_text())
    ]


def _shape(text):
    return tuple(int(size) for size in text[text.index("[") + 1 : -1].split(",") if size)


def random_transitions(count, seed):
    rng = np.random.default_rng(seed)
    meshes = [(2, 2), (4, 2), (2, 3), (2, 2, 2), (2, 3, 2), (8, 5, 1)]
    shapes = [(24, 48, 16), (7, 5), (5, 3), (48, 24), (48,)]
    found = []
    while len(found) < count:
        mesh, shape = meshes[rng.integers(len(meshes))], shapes[rng.integers(len(shapes))]
        kept = ["R"] + [f"S({dim})" for dim in range(len(shape))]
        source = ",".join(rng.choice(kept + ["P"]) for _ in mesh)
        target = ",".join(rng.choice(kept) for _ in mesh)
        if source != target:
            found.append((mesh, shape, source, target))
    return found
