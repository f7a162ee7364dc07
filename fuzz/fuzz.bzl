"""A fuzz target, and the test that replays its corpus."""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library", "cc_test")

def fuzz_target(name, deps):
    """From NAME_fuzz.cc and corpus/NAME: NAME_fuzz for libFuzzer, NAME_replay_test for every build.

    Args:
      name: of the target.
      deps: what NAME_fuzz.cc includes.
    """
    cc_library(
        name = name + "_input",
        testonly = True,
        srcs = [name + "_fuzz.cc"],
        deps = deps + [":fuzz"],
        alwayslink = True,
    )
    cc_binary(
        name = name + "_fuzz",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],  # needs --config=fuzz
        deps = [":" + name + "_input"],
    )
    corpus = native.glob(["corpus/%s/*" % name])
    cc_test(
        name = name + "_replay_test",
        size = "small",
        srcs = ["replay_main.cc"],
        args = ["$(location %s)" % file for file in corpus],
        data = corpus,
        deps = [
            ":fuzz",
            ":" + name + "_input",
        ],
    )
