"""Compares the declarations of meshift/_c.py with include/meshift/c.h."""

import ctypes
import pathlib
import re
import shutil
import subprocess

import pytest
from meshift import _c

HEADER = pathlib.Path(__file__).parents[2] / "include" / "meshift" / "c.h"
TEXT = re.sub(r"//[^\n]*", "", HEADER.read_text(encoding="utf-8"))

# In the header: the numbers of enums.
INT32 = {"int32_t"} | set(re.findall(r"typedef int32_t (meshift_\w+);", TEXT))


def kind_of(declared, is_field=False):
    """The ctypes type of a C type: an argument, a field, or a result."""
    words = declared.replace("*", " * ").split()
    if "*" not in words:
        (word,) = [word for word in words if word != "const"]
        if word in INT32:
            return ctypes.c_int32
        plain = {"int64_t": ctypes.c_int64, "size_t": ctypes.c_size_t, "void": None}
        return plain[word] if word in plain else STRUCTS[word]
    if words == ["const", "char", "*"]:
        return ctypes.c_char_p
    if is_field and words[:1] == ["const"] and words[1] in ("int32_t", "int64_t"):
        return ctypes.POINTER(getattr(ctypes, "c_" + words[1][:-2]))
    return ctypes.c_void_p


def functions_of(text):
    """Result type and argument types of each function of the header."""
    found = {}
    for result, name, arguments in re.findall(
        r"MESHIFT_EXPORT\s+([\w\s*]+?)\b(meshift_\w+)\s*\(([^()]*)\)", text
    ):
        parts = [] if arguments.strip() == "void" else arguments.split(",")
        found[name] = (
            kind_of(result),
            [kind_of(re.sub(r"\w+\s*$", "", part.strip())) for part in parts],
        )
    return found


def structs_of(text):
    """Fields of each struct of the header: name, type, length of an array or None."""
    found = {}
    for name, body in re.findall(r"typedef struct (meshift_\w+) \{(.*?)\} \1;", text, re.S):
        if "(" in body:  # functions: not a struct that Python fills
            continue
        found[name] = [
            re.fullmatch(r"(.*?)(\w+)\s*(?:\[(\w+)\])?", field.strip(), re.S).groups()
            for field in body.split(";")
            if field.strip()
        ]
    return found


def c_name(cls):
    return "meshift" + re.sub("([A-Z])", lambda match: "_" + match.group(1).lower(), cls.__name__)


STRUCTS = {
    c_name(cls): cls
    for cls in vars(_c).values()
    if isinstance(cls, type) and issubclass(cls, ctypes.Structure) and hasattr(cls, "_fields_")
}
FUNCTIONS = functions_of(TEXT)


def test_the_parser_sees_the_header():
    assert len(FUNCTIONS) > 90
    assert FUNCTIONS["meshift_version"] == (ctypes.c_char_p, [])
    assert FUNCTIONS["meshift_plan_json"][1][1:] == [ctypes.c_int32] + [ctypes.c_void_p] * 2
    assert len(STRUCTS) > 12
    assert len(structs_of(TEXT)["meshift_instruction"]) == 22


@pytest.mark.parametrize("name", sorted(_c._CALLS))
def test_functions_that_may_fail(name):
    result, arguments = FUNCTIONS["meshift_" + name]
    assert result is ctypes.c_int32
    assert arguments == [*_c._CALLS[name], ctypes.c_void_p]


@pytest.mark.parametrize("name", sorted(_c._OTHERS))
def test_other_functions(name):
    result, arguments = FUNCTIONS["meshift_" + name]
    assert [result, *arguments] == list(_c._OTHERS[name])


def test_all_that_is_declared_is_used():
    folder = pathlib.Path(_c.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    for name in [*_c._CALLS, *_c._OTHERS]:
        computed = name.endswith(("_destroy", "_name")) or name in ("plan_text", "plan_fingerprint")
        assert computed or re.search(rf"meshift_{name}\b", text), name


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_structs(name):
    fields = []
    for declared, field, length in structs_of(TEXT)[name]:
        kind = kind_of(declared, is_field=True)
        if length is not None:
            assert length == "MESHIFT_MAX_TENSOR_RANK"
            kind = kind * _c.MAX_TENSOR_RANK
        fields.append((field, kind))
    assert STRUCTS[name]._fields_ == fields


def test_constants():
    assert f"#define MESHIFT_ABI_VERSION {_c.ABI_VERSION}\n" in TEXT
    assert f"#define MESHIFT_MAX_TENSOR_RANK {_c.MAX_TENSOR_RANK}\n" in TEXT


def test_as_a_compiler_has_it(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    lines, expected = [], []
    for name, cls in sorted(STRUCTS.items()):
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        expected.append(f"{name} {ctypes.sizeof(cls)}")
        for field, _ in cls._fields_:
            lines.append(f'printf("{name}.{field} %zu\\n", offsetof({name}, {field}));')
            expected.append(f"{name}.{field} {getattr(cls, field).offset}")
    source = tmp_path / "sizes.c"
    source.write_text(
        "#include <stdio.h>\n#include <stddef.h>\n#include <meshift/c.h>\nint main(void) {\n"
        + "\n".join(lines)
        + "\nreturn 0;\n}\n"
    )
    program = tmp_path / "sizes"
    include = HEADER.parents[1]
    subprocess.run([compiler, f"-I{include}", "-o", program, source], check=True)
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == expected
