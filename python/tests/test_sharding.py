"""Shardings, boxes and shards."""

import meshift
import pytest
from meshift import Box, DeviceMesh, Sharding

MESH = DeviceMesh("dp=2,tp=4")


def test_what_it_has():
    sharding = Sharding("bf16[64,16]", MESH, "P,S(0)")
    assert sharding.text == "bf16[64,16] on dp=2,tp=4 as P,S(0)" == str(sharding)
    assert sharding.placements == "P,S(0)"
    assert sharding.mesh == MESH
    assert sharding.dtype == "bf16"
    assert sharding.shape == (64, 16)
    assert sharding == Sharding.parse(sharding.text)
    assert eval(repr(sharding), {"Sharding": Sharding}) == sharding


def test_others_like_it():
    sharding = Sharding("bf16[64,16]", MESH, "P,S(0)")
    assert sharding.with_placements("R,R").text == "bf16[64,16] on dp=2,tp=4 as R,R"
    assert sharding.with_dtype("f32").text == "f32[64,16] on dp=2,tp=4 as P,S(0)"
    assert len({sharding, sharding.with_placements("P,S(0)"), sharding.with_dtype("f32")}) == 2
    assert sharding != sharding.text


def test_names_of_dtensor():
    sharding = Sharding("f32[8]", DeviceMesh("a=2,b=2"), "(Partial(max), Shard(0))")
    assert sharding.placements == "P(max),S(0)"


def test_boxes():
    sharding = Sharding("bf16[10,8]", MESH, "S(0),S(1)")
    assert sharding.local_box(5) == Box("bf16", (5, 2), (5, 2), 10, 20)
    box = sharding.local_box(99)
    assert (box.shape, box.num_elements, box.num_bytes) == ((0,), 0, 0)
    dtype, offset, shape, elements, num_bytes = sharding.local_box(5)
    assert (dtype, offset, shape, elements, num_bytes) == ("bf16", (5, 2), (5, 2), 10, 20)


def test_scalars_and_uneven_shards():
    assert Sharding("f32[]", MESH, "R,P").local_box(3) == Box("f32", (), (), 1, 4)
    uneven = Sharding("f32[5]", DeviceMesh("a=4"), "S(0)")
    assert [box.shape[0] for box in meshift.shards(uneven)] == [2, 2, 1, 0]


def test_shards_are_in_order_of_the_mesh():
    sharding = Sharding.parse("i8[4] on a=2@7,3 as S(0)")
    first, second = meshift.shards(sharding)
    assert first == sharding.local_box(7)
    assert first.offset == (0,)
    assert second == sharding.local_box(3)
    assert second.offset == (2,)


@pytest.mark.parametrize(
    "tensor, placements, message",
    [
        ("x[4]", "R,R", "x"),
        ("f32[4", "R,R", "expected"),
        ("f32[-1]", "R,R", "-1"),
        ("f32[4]", "R", "the number of placements is 1; expected 2"),
        ("f32[4]", "R,S(1)", "1"),
        ("f32[4]", "R,X", "X"),
        ("bool[4]", "R,P", "bool"),
        ("f32[4]\0", "R,R", "zero byte"),
        ("f32[4]", "R,R\0", "zero byte"),
    ],
)
def test_wrong_values(tensor, placements, message):
    with pytest.raises(ValueError, match=message):
        Sharding(tensor, MESH, placements)


def test_wrong_types():
    with pytest.raises(TypeError, match="mesh must be a DeviceMesh, not str"):
        Sharding("f32[4]", "dp=2,tp=4", "R,R")
    with pytest.raises(TypeError, match="tensor must be a str, not bytes"):
        Sharding(b"f32[4]", MESH, "R,R")
    with pytest.raises(TypeError, match="placements must be a str, not tuple"):
        Sharding("f32[4]", MESH, ("R", "R"))
    with pytest.raises(TypeError, match="text must be a str"):
        Sharding.parse(None)
    sharding = Sharding("f32[4]", MESH, "R,R")
    with pytest.raises(TypeError, match="placements"):
        sharding.with_placements(1)
    with pytest.raises(TypeError, match="dtype"):
        sharding.with_dtype(float)
    with pytest.raises(TypeError, match="rank"):
        sharding.local_box("0")
    with pytest.raises(TypeError, match="sharding must be a Sharding, not DeviceMesh"):
        meshift.shards(MESH)


def test_wrong_derived_values():
    sharding = Sharding("f32[4]", MESH, "R,P")
    with pytest.raises(ValueError, match="f31"):
        sharding.with_dtype("f31")
    with pytest.raises(ValueError, match="bool"):
        sharding.with_dtype("bool")
    with pytest.raises(ValueError):
        sharding.with_placements("R")
    with pytest.raises(ValueError, match="64 bits"):
        sharding.local_box(-(1 << 70))


def test_errors_have_the_text_of_the_library():
    with pytest.raises(meshift.MeshiftError) as caught:
        Sharding.parse("f32[4] on a=2 as S(3)")
    assert caught.value.code == "INVALID_ARGUMENT"
    assert "3" in str(caught.value)
    assert isinstance(caught.value, ValueError)
