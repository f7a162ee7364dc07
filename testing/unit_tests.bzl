"""Defines tests of one file each.

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
      names: the tests' names; their files have these names with ".cc".
      deps: dependencies of all tests, besides googletest and its main.
      size: Bazel's size of all tests.
      **kwargs: other attributes of all tests.
    """
    for name in names:
        native.cc_test(
            name = name,
            size = size,
            srcs = [name + ".cc"],
            deps = deps + ["//third_party:gtest_main"],
            **kwargs
        )
