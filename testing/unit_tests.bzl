"""Tests of one file each.

    load("//testing:unit_tests.bzl", "unit_tests")

    unit_tests(
        names = ["layout_test", "topology_test"],
        deps = [":mesh"],
    )

makes //mesh:layout_test of layout_test.cc, and so on.
"""

def unit_tests(names, deps = [], size = "small", **kwargs):
    """A cc_test per name.

    Args:
      names: of the tests; their files have these names with ".cc".
      deps: of all of them, besides googletest and its main.
      size: as of any test.
      **kwargs: likewise.
    """
    for name in names:
        native.cc_test(
            name = name,
            size = size,
            srcs = [name + ".cc"],
            deps = deps + ["//third_party:gtest_main"],
            **kwargs
        )
