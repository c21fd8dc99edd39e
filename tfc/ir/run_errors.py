"""What goes wrong when part of a graph runs: errors that a caller can tell apart by their class."""

from __future__ import annotations

from typing import ClassVar

from tfc.ir.errors import TfcError


class SessionError(TfcError):
    """Any of the errors below; `kind` is its name in one word."""

    kind: ClassVar[str] = "session"


class UnknownNameError(SessionError):
    """A feed, fetch or target that the graph does not have."""

    kind = "unknown_name"


class MissingFeedError(SessionError):
    """What is asked for needs an input that was not fed."""

    kind = "missing_feed"


class UninitializedError(SessionError):
    """A variable is read before it was assigned."""

    kind = "uninitialized"


class DeadValueError(SessionError):
    """A value is asked for that no branch that was taken makes."""

    kind = "dead"


class OutOfRangeError(SessionError):
    """A queue that is closed, or a reader at its end, has no more elements."""

    kind = "out_of_range"


class InnerFrameError(SessionError):
    """A value in a loop or a branch, which has many values or none, is fed or asked for."""

    kind = "inner_frame"


class AlreadyFedError(SessionError):
    """A partial run is fed the same value twice."""

    kind = "already_fed"


class NotDeclaredError(SessionError):
    """A partial run is given or asked for what its setup does not name."""

    kind = "not_declared"
