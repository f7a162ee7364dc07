"""NumPy writes the sources, `meshift run --load --save` moves them, NumPy reads the targets.

What the targets should hold is worked out here, from the placements, by chunk and sum.
"""

import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

MESHIFT = sys.argv[1]


def part(array, mesh, placements, coordinate):
    """The rank's part of a tensor: chunks of ceil(size / n), cut in mesh order."""
    for size, place, i in zip(mesh.values(), placements, coordinate):
        if not place.startswith("S"):
            continue
        dim = int(place[2:-1])
        chunk = -(-array.shape[dim] // size)
        begin = min(array.shape[dim], i * chunk)
        array = array.take(np.arange(begin, min(array.shape[dim], begin + chunk)), axis=dim)
    return array


def bf16_of(array):
    """The bits of a float array whose values bf16 has."""
    bits = array.astype("<f4").view("<u4")
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype("<u2")


def run(mesh, ranks, dtype, shape, from_, to, layout="C", order="<", versions=((1, 0),)):
    """One redistribution, of small integers, so that every order of adding them is exact."""
    random = np.random.RandomState(len(shape) * 7 + len(dtype))
    places = {"from": from_.split(","), "to": to.split(",")}
    coordinates = list(itertools.product(*(range(size) for size in mesh.values())))
    names = ranks or list(range(len(coordinates)))
    partial = [place == "P" for place in places["from"]]
    # One global tensor per coordinate of the partial mesh dims.
    contributions = {}
    for coordinate in coordinates:
        key = tuple(i for i, p in zip(coordinate, partial) if p)
        if key not in contributions:
            contributions[key] = random.randint(-9, 10, size=shape).astype("f8")
    total = sum(contributions.values())
    numpy_dtype = {"f16": "f2", "bf16": None, "f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8"}[dtype]

    def typed(array):
        return bf16_of(array) if numpy_dtype is None else array.astype("<" + numpy_dtype)

    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
        os.mkdir(source)
        for name, coordinate in zip(names, coordinates):
            key = tuple(i for i, p in zip(coordinate, partial) if p)
            local = typed(part(contributions[key], mesh, places["from"], coordinate))
            local = local.astype(local.dtype.newbyteorder(order)).copy(order=layout)
            if numpy_dtype is None and order == "<":
                local = local.view("V2")
            with open(f"{source}/source.rank{name:05}.npy", "wb") as file:
                np.lib.format.write_array(file, local, version=versions[name % len(versions)])
        text = ",".join(f"{dim}={size}" for dim, size in mesh.items())
        if ranks:
            text += "@" + ",".join(map(str, ranks))
        tensor = f"{dtype}[{','.join(map(str, shape))}]"
        command = [MESHIFT, "run", "--mesh", text, "--tensor", tensor, "--from", from_, "--to", to,
                   "--load", source, "--save", target]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        for name, coordinate in zip(names, coordinates):
            want = typed(part(total, mesh, places["to"], coordinate))
            got = np.load(f"{target}/target.rank{name:05}.npy", allow_pickle=False)
            if numpy_dtype is None:
                assert got.dtype == np.dtype("V2"), got.dtype
                got = got.view("<u2") if got.size else np.zeros(got.shape, "<u2")
            assert got.dtype == want.dtype, (command, name, got.dtype)
            assert got.shape == want.shape, (command, name, got.shape, want.shape)
            assert got.tobytes() == want.tobytes(), (command, name, got, want)
            # The saved source is equal to the loaded one.
            loaded = np.load(f"{source}/source.rank{name:05}.npy")
            saved = np.load(f"{target}/source.rank{name:05}.npy")
            if numpy_dtype is not None:
                assert np.array_equal(loaded, saved), (command, name)
    return 1


count = 0
for dtype in ("f32", "f64", "i32", "i64", "f16", "bf16"):
    count += run({"a": 2, "b": 3}, None, dtype, (7, 5), "P,S(0)", "S(1),R")
    count += run({"a": 4}, None, dtype, (2, 3), "S(0)", "R")  # empty shards
    count += run({"a": 4}, None, dtype, (5, 2), "P", "S(0)")  # an empty shard in the target
    count += run({"a": 2, "b": 2}, [7, 5, 3, 1], dtype, (5, 3), "S(0),S(0)", "S(1),S(0)")
    count += run({"a": 3}, None, dtype, (), "P", "R")
    count += run({"a": 2}, None, dtype, (0, 4), "S(0)", "R")
    count += run({"a": 2, "b": 2}, None, dtype, (6, 3), "P,S(0)", "R,R", layout="F")
    count += run({"a": 2, "b": 2}, None, dtype, (6, 3), "P,R", "S(0),R", order=">")
    count += run({"a": 4}, None, dtype, (9,), "P", "R", versions=((1, 0), (2, 0), (3, 0)))
print(f"{count} redistributions")
