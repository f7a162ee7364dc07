"""The local engine on NumPy arrays."""

import random
import threading

import pytest

np = pytest.importorskip("numpy")

import meshift  # noqa: E402
from meshift import Sharding, local, plan  # noqa: E402

DTYPES = "bool i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2 f4e2m1 c64 c128".split()


def any_array(generator, sharding):
    """Random bits that are values of the dtype."""
    dtype = local.numpy_dtype(sharding.dtype)
    shape = local._halved(sharding.shape, sharding.dtype)
    if sharding.dtype == "bool":
        return generator.integers(0, 2, shape).astype(bool)
    size = int(np.prod(shape)) * dtype.itemsize
    return generator.integers(0, 256, size).astype(np.uint8).view(dtype).reshape(shape)


def same_bits(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_every_dtype(dtype):
    generator = np.random.default_rng(1)
    source = Sharding.parse(f"{dtype}[8,8] on a=2,b=2@3,1,0,6 as S(0),S(1){{2,6}}")
    array = any_array(generator, source)
    for placements in ("S(1),R", "R,S(0)", "S(0)[1],S(0)[0]", "R,R"):
        target = source.with_placements(placements)
        parts = local.run(plan(source, target), local.shard(array, source))
        assert same_bits(local.unshard(parts, target), array)


@pytest.mark.parametrize("shape", ["", "4,6"])
def test_moves_from_and_to_a_part_of_the_mesh(shape):
    """Ranks that At leaves out hold nothing, also of a tensor without dims."""
    source = Sharding.parse(f"f32[{shape}] on a=3,b=2 as At(2),R")
    array = any_array(np.random.default_rng(3), source)
    parts = local.shard(array, source)
    assert [part.size for part in parts] == [0] * 4 + [array.size] * 2
    for placements in ("R,R", "At(0),R", "At(0,1),At(1)"):
        target = source.with_placements(placements)
        moved = local.run(plan(source, target), parts)
        assert same_bits(local.unshard(moved, target), array)


def test_moves_random_shards():
    choose = random.Random(7)
    generator = np.random.default_rng(7)
    for _ in range(60):
        shape = [choose.randint(0, 7) for _ in range(choose.randint(1, 3))]
        mesh = choose.choice(["a=2,b=3", "a=4,b=2", "a=2,b=2,c=2", "a=5", "a=2,b=2@9,2,5,3"])
        dims = mesh.split("@")[0].count("=")

        def placements():
            return ",".join(
                choose.choice(["R", "At(0)"] + [f"S({d})" for d in range(len(shape))])
                for _ in range(dims)
            )

        tensor = f"i16[{','.join(map(str, shape))}]"
        source = Sharding.parse(f"{tensor} on {mesh} as {placements()}")
        other = choose.choice([mesh, mesh, "x=3", "x=2@11,0"])
        dims = other.split("@")[0].count("=")
        target = Sharding.parse(f"{tensor} on {other} as {placements()}")
        array = any_array(generator, source)
        parts = local.run(plan(source, target), local.shard(array, source))
        assert len(parts) == target.mesh.num_ranks
        assert same_bits(local.unshard(parts, target), array), (source, target)


@pytest.mark.parametrize(
    "dtype, op, reduce",
    [
        ("i32", "sum", np.add),
        ("u8", "product", np.multiply),
        ("f32", "max", np.maximum),
        ("f64", "min", np.minimum),
        ("u16", "or", np.bitwise_or),
        ("bool", "and", np.logical_and),
        ("i64", "xor", np.bitwise_xor),
    ],
)
def test_reduces(dtype, op, reduce):
    generator = np.random.default_rng(3)
    source = Sharding.parse(f"{dtype}[5,3] on a=2,b=2 as P({op}),S(0)")
    boxes = meshift.shards(source)
    arrays = [
        generator.integers(0, 2 if dtype == "bool" else 100, box.shape).astype(
            local.numpy_dtype(dtype)
        )
        for box in boxes
    ]
    target = source.with_placements("R,R")
    whole = local.unshard(local.run(plan(source, target), arrays), target)
    expected = np.concatenate([reduce(arrays[0], arrays[2]), reduce(arrays[1], arrays[3])])
    assert same_bits(whole, expected)


def test_ordered_sums_have_the_bits_of_the_definition():
    generator = np.random.default_rng(5)
    source = Sharding.parse("f32[1000] on a=8 as P")
    target = source.with_placements("R")
    arrays = [generator.standard_normal(1000).astype(np.float32) for _ in range(8)]
    expected = arrays[0]
    for array in arrays[1:]:
        expected = expected + array
    made = plan(source, target, reproducibility="ordered")
    for order in ("ranks", "topology", "adversarial"):
        for part in local.run(made, arrays, reduction_order=order, domain_size=2):
            assert same_bits(part, expected)


def test_ordered_sums_of_bf16_are_rounded_once():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    generator = np.random.default_rng(5)
    source = Sharding.parse("bf16[1000] on a=4 as P")
    arrays = [generator.standard_normal(1000).astype(ml_dtypes.bfloat16) for _ in range(4)]
    expected = arrays[0].astype(np.float32)
    for array in arrays[1:]:
        expected = expected + array.astype(np.float32)
    made = plan(source, source.with_placements("R"), reproducibility="ordered")
    for part in local.run(made, arrays):
        assert same_bits(part, expected.astype(ml_dtypes.bfloat16))


def test_orders_of_reductions_show_on_replicas():
    generator = np.random.default_rng(9)
    source = Sharding.parse("f32[256] on a=2,b=2 as P,P")
    target = source.with_placements("R,R")
    arrays = [generator.standard_normal(256).astype(np.float32) for _ in range(4)]
    chained = plan(source, target, planner="per-dim", reproducibility="none")
    parts = local.run(chained, arrays)
    assert all(same_bits(part, parts[0]) for part in parts)
    parts = local.run(chained, arrays, reduction_order="adversarial")
    assert same_bits(parts[0], parts[1])
    assert not same_bits(parts[0], parts[2])
    assert np.allclose(parts[0], parts[2], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="ranks 0 and 2 hold replicas with different bits"):
        local.unshard(parts, target)
    ours = local.run(plan(source, target), arrays, reduction_order="adversarial")
    assert all(same_bits(part, ours[0]) for part in ours)
    # Domains of two ranks: (0 + 1) + (2 + 3), another order than rank order.
    wide = Sharding.parse("f32[256] on a=4 as P")
    one = plan(wide, wide.with_placements("R"))
    by_domain = local.run(one, arrays, reduction_order="topology", domain_size=2)[0]
    assert same_bits(by_domain, (arrays[0] + arrays[1]) + (arrays[2] + arrays[3]))
    by_rank = local.run(one, arrays)[0]
    assert same_bits(by_rank, ((arrays[0] + arrays[1]) + arrays[2]) + arrays[3])
    assert not same_bits(by_domain, by_rank)


def test_casts():
    source = Sharding.parse("f32[4] on a=2 as S(0)")
    target = source.with_placements("R").with_dtype("f16")
    array = np.array([1.0, 1e-8, 65520.0, -2.5], np.float32)
    (first, _) = local.run(plan(source, target), local.shard(array, source))
    assert same_bits(first, np.array([1.0, 0.0, np.inf, -2.5], np.float16))


def test_mappings_are_by_rank():
    source = Sharding.parse("i8[6] on a=3@4,0,2 as S(0)")
    target = Sharding.parse("i8[6] on b=2@0,7 as S(0)")
    array = np.arange(6, dtype=np.int8)
    parts = dict(zip(source.mesh.ranks, local.shard(array, source)))
    shuffled = {rank: parts[rank] for rank in (0, 2, 4)}
    given = local.run(plan(source, target), shuffled)
    assert list(given) == [0, 7]
    assert given[7].tolist() == [3, 4, 5]
    assert same_bits(local.unshard(given, target), array)


def test_sources_are_only_read_and_need_not_be_contiguous():
    source = Sharding.parse("f32[4,6] on a=2 as P")
    wide = np.arange(48, dtype=np.float32).reshape(6, 8)[:, ::2].T
    wide.setflags(write=False)
    (first, second) = local.run(plan(source, source.with_placements("R")), [wide, wide])
    assert same_bits(first, np.ascontiguousarray(wide * 2))
    assert same_bits(second, first)


def test_scalars_and_empty_tensors():
    scalar = Sharding.parse("f64[] on a=3 as P")
    parts = local.run(plan(scalar, scalar.with_placements("R")), [np.float64(x) for x in (1, 2, 4)])
    assert [part.shape for part in parts] == [()] * 3
    assert [float(part) for part in parts] == [7.0] * 3
    empty = Sharding.parse("f32[0,3] on a=2 as S(1)")
    whole = np.empty((0, 3), np.float32)
    target = empty.with_placements("R")
    parts = local.run(plan(empty, target), local.shard(whole, empty))
    assert local.unshard(parts, target).shape == (0, 3)


def test_bits_stand_for_dtypes_that_numpy_lacks(monkeypatch):
    import builtins

    source = Sharding.parse("bf16[4] on a=2 as P")
    one = np.full(4, 0x3F80, np.uint16)  # 1.0
    target = source.with_placements("R")
    for part in local.run(plan(source, target), [one, one]):
        assert part.dtype == local.numpy_dtype("bf16")
        assert part.view(np.uint16).tolist() == [0x4000] * 4  # 2.0

    real = builtins.__import__

    def without(name, *arguments):
        if name == "ml_dtypes":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    assert local.numpy_dtype("bf16") == np.uint16
    assert local.numpy_dtype("f8e4m3") == local.numpy_dtype("f8e5m2") == np.uint8
    for part in local.run(plan(source, target), [one, one]):
        assert part.dtype == np.uint16
        assert part.tolist() == [0x4000] * 4


def test_wrong_arguments():
    source = Sharding.parse("f32[4] on a=2 as S(0)")
    made = plan(source, source.with_placements("R"))
    right = np.zeros(2, np.float32)
    with pytest.raises(TypeError, match="plan must be a Plan"):
        local.run(source, [right, right])
    with pytest.raises(ValueError, match="arrays has length 1; expected 2, one for each rank"):
        local.run(made, [right])
    with pytest.raises(ValueError, match="no array for rank 1"):
        local.run(made, {0: right})
    with pytest.raises(ValueError, match="rank 2 is not in mesh"):
        local.run(made, {0: right, 1: right, 2: right})
    with pytest.raises(TypeError, match="a rank of arrays must be an int"):
        local.run(made, {"0": right, 1: right})
    with pytest.raises(TypeError, match="rank 1 is of dtype float64, but f32 needs float32"):
        local.run(made, [right, np.zeros(2)])
    with pytest.raises(TypeError, match="dtype"):
        local.run(made, [right, right.astype(">f4")])
    with pytest.raises(ValueError, match="rank 0 has shape \\(3,\\), but it should be \\(2,\\)"):
        local.run(made, [np.zeros(3, np.float32), right])
    with pytest.raises(ValueError, match="unknown reduction_order 'random'"):
        local.run(made, [right, right], reduction_order="random")
    with pytest.raises(ValueError, match="domain_size is 0"):
        local.run(made, [right, right], reduction_order="topology", domain_size=0)
    with pytest.raises(TypeError, match="domain_size"):
        local.run(made, [right, right], domain_size=2.0)
    with pytest.raises(TypeError, match="sharding must be a Sharding"):
        local.shard(right, made)
    with pytest.raises(ValueError, match="partial values: P"):
        local.shard(right, source.with_placements("P"))
    with pytest.raises(ValueError, match="partial values: P"):
        local.unshard([right, right], source.with_placements("P"))
    with pytest.raises(ValueError, match="should be \\(4,\\)"):
        local.shard(right, source)
    with pytest.raises(ValueError, match="f31"):
        local.numpy_dtype("f31")


def test_a_wrong_plan_is_refused_and_leaves_no_work():
    source = Sharding.parse("f32[8] on a=4 as P")
    made = plan(source, source.with_placements("R"))
    wrong = meshift.Plan.read(made.text.replace("P -> R", "P -> S(0)"))
    arrays = [np.ones(8, np.float32) for _ in range(4)]
    with pytest.raises(meshift.MeshiftError):
        local.run(wrong, arrays)
    assert local.run(made, arrays)[3].tolist() == [4.0] * 8


def test_work_ends_where_a_call_fails(monkeypatch):
    from meshift import _c

    source = Sharding.parse("f32[8] on a=4 as P")
    made = plan(source, source.with_placements("R"))
    arrays = [np.ones(8, np.float32) for _ in range(4)]
    real, calls = _c.make, []

    def failing(kind, name, *arguments):
        if name == "meshift_redistribute_plan":
            calls.append(name)
            if len(calls) == 3:
                raise KeyboardInterrupt
        return real(kind, name, *arguments)

    monkeypatch.setattr(_c, "make", failing)
    # Two ranks wait for two that never come: without the abort it would take ten minutes.
    with pytest.raises(KeyboardInterrupt):
        local.run(made, arrays)
    assert local.run(made, arrays)[3].tolist() == [4.0] * 8


def test_threads():
    source = Sharding.parse("i32[64] on a=2,b=2 as P,S(0)")
    target = source.with_placements("R,R")
    arrays = [np.full(32, r, np.int32) for r in range(4)]
    made = plan(source, target)
    failures = []

    def work():
        try:
            for _ in range(5):
                whole = local.unshard(local.run(made, arrays), target)
                assert whole.tolist() == [2] * 32 + [4] * 32
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
