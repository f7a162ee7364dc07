"""Meshes."""

import meshift
import pytest
from meshift import DeviceMesh


def test_from_text():
    mesh = DeviceMesh("dp=2,tp=4")
    assert mesh.text == "dp=2,tp=4" == str(mesh)
    assert mesh.names == ("dp", "tp")
    assert mesh.shape == (2, 4)
    assert mesh.num_ranks == 8
    assert mesh.ranks == tuple(range(8))
    assert mesh.coordinate(6) == (1, 2)
    assert repr(mesh) == "DeviceMesh('dp=2,tp=4')"


def test_from_a_shape():
    assert DeviceMesh((2, 4), ("dp", "tp")) == DeviceMesh("dp=2,tp=4")
    mesh = DeviceMesh([2, 2], ["a", "b"], ranks=[4, 5, 0, 1])
    assert mesh.text == "a=2,b=2@4-5,0-1"
    assert mesh.ranks == (4, 5, 0, 1)
    assert mesh.coordinate(0) == (1, 0)
    assert DeviceMesh((2,), ("a",), ranks=range(2)) == DeviceMesh("a=2")


def test_contains():
    mesh = DeviceMesh("a=2@3,5")
    assert 5 in mesh
    assert 4 not in mesh
    assert "5" not in mesh


def test_equality_and_hash():
    mesh = DeviceMesh("a=2")
    assert mesh == DeviceMesh("a = 2")
    assert mesh != DeviceMesh("b=2")
    assert mesh != DeviceMesh("a=2@1,0")
    assert mesh != "a=2"
    assert len({mesh, DeviceMesh("a=2"), DeviceMesh("a=4")}) == 2


def test_a_million_ranks_cost_nothing():
    assert DeviceMesh("a=1024,b=1024").num_ranks == 1 << 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("",), "mesh"),
        (("a",), "'a' is not name=size"),
        (("a=0",), "sizes are 1 or more"),
        (("a=2,a=2",), "named twice"),
        (("a=2@0",), "lists 1 ranks"),
        (("a=2@0,0",), "twice"),
        (("a=2\0",), "zero byte"),
        (((), ()), "mesh"),
        (((2, 2), ("a",)), "shape has length 2, but names has length 1"),
        (((2,), ("a=2,b",)), "cannot be the name"),
        (((2,), ("",)), "cannot be the name"),
        (((-1,), ("a",)), "-1"),
        (((2,), ("a",), [0]), "lists 1 ranks"),
        (((2,), ("a",), [0, -1]), "-1"),
        (((1 << 63,), ("a",)), "64 bits"),
    ],
)
def test_wrong_values(arguments, message):
    with pytest.raises(ValueError, match=message):
        DeviceMesh(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (None,),
        (3,),
        (b"a=2",),
        ("a=2", ("a",)),
        ("a=2", None, [0, 1]),
        ((2, 4),),
        ((2,), "a"),
        ((2,), (1,)),
        ((2.0,), ("a",)),
        ((True,), ("a",)),
        ((2,), ("a",), [0.0, 1.0]),
        ((2,), ("a",), 1),
    ],
)
def test_wrong_types(arguments):
    with pytest.raises(TypeError):
        DeviceMesh(*arguments)


def test_coordinates_that_are_not_there():
    mesh = DeviceMesh("a=2")
    with pytest.raises(ValueError, match="rank 2 is not in mesh a=2") as caught:
        mesh.coordinate(2)
    assert isinstance(caught.value, meshift.MeshiftError)
    assert caught.value.code == "NOT_FOUND"
    with pytest.raises(ValueError, match="64 bits"):
        mesh.coordinate(1 << 64)
    for wrong in ("0", 0.0, None, True):
        with pytest.raises(TypeError, match="rank must be an int"):
            mesh.coordinate(wrong)


def test_numbers_of_other_libraries_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert DeviceMesh("a=2,b=2").coordinate(numpy.int32(3)) == (1, 1)
    assert DeviceMesh(numpy.array([2, 2]), ("a", "b")) == DeviceMesh("a=2,b=2")
