"""Operating errors: typed, handled, and shown to operators. Programming errors are assertions.

An operating error is temporary (with a delay before the retry) or permanent (an operator must act). Its
text is shown unchanged: one line, what failed, where, and a hint if there is one.
"""

from __future__ import annotations


class OperatingError(Exception):
    """A failure of the environment: network, broker, ZooKeeper, configuration."""


class TemporaryError(OperatingError):
    """A failure that can be retried after `delay_s`."""

    def __init__(self, message: str, *, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class PermanentError(OperatingError):
    """No retry will help; an operator or another configuration must."""


class ConfigurationError(PermanentError):
    """Invalid configuration; the text names every key."""


class InvalidTransition(AssertionError):
    """A programming error in a state machine, with the last transitions of the partition."""
