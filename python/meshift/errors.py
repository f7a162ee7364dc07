"""The exceptions for errors of the library. Each has a message, and the name of its code.

Each is a MeshiftError and also a built-in exception:

    INVALID_ARGUMENT, OUT_OF_RANGE, NOT_FOUND    ValueError
    UNIMPLEMENTED                                NotImplementedError
    DEADLINE_EXCEEDED                            TimeoutError
    all others                                   RuntimeError

docs/errors.md says when the library returns each code. plan_model() raises UNKNOWN where the command
fails without one. The package's own checks of arguments raise plain built-in exceptions instead,
such as TypeError or ValueError. Ranks of meshift.torch that disagree get MeshiftErrors.
"""

from __future__ import annotations


class MeshiftError(Exception):
    """An error of the library. `code` is the name of its code, such as "INVALID_ARGUMENT"."""

    code: str

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.code)


class InvalidArgumentError(MeshiftError, ValueError):
    """An argument is wrong, whatever the state."""


class UnimplementedError(MeshiftError, NotImplementedError):
    """The request is valid, but this version or engine cannot serve it."""


class DeadlineExceededError(MeshiftError, TimeoutError):
    """A call did not finish within its time-out."""


class OtherError(MeshiftError, RuntimeError):
    """All other codes, such as RESOURCE_EXHAUSTED and FAILED_PRECONDITION."""


class VerificationError(OtherError):
    """A plan is wrong. `rule` is the name of the broken rule, `step` the number of the step.

    `step` is None if the rule is about the whole plan. docs/errors.md lists the rules.
    """

    rule: str
    step: int | None

    def __init__(self, message: str, rule: str, step: int | None) -> None:
        super().__init__(message, "FAILED_PRECONDITION")
        self.rule = rule
        self.step = step

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.rule, self.step)


_CLASSES: dict[str, type[MeshiftError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": InvalidArgumentError,
    "NOT_FOUND": InvalidArgumentError,
    "UNIMPLEMENTED": UnimplementedError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
}


def make_error(code: str, message: str) -> MeshiftError:
    """Makes the exception for a code of the library."""
    return _CLASSES.get(code, OtherError)(message, code)
