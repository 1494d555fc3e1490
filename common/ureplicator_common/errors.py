"""Two kinds of error: operating errors are these, typed and handled; programmer's errors are asserts.

An operating error is temporary (it says after how long to try again) or permanent (a person must act).
Its text is shown as it is to the people on call: one line, what failed, where, and the hint if known.
"""

from __future__ import annotations


class OperatingError(Exception):
    """Anything that the world may do to us."""


class TemporaryError(OperatingError):
    """Worth another try after `delay_s`."""

    def __init__(self, message: str, *, delay_s: float = 1.0) -> None:
        super().__init__(message)
        self.delay_s = delay_s


class PermanentError(OperatingError):
    """No try will mend it; a person or another configuration must."""


class ConfigurationError(PermanentError):
    """The configuration is wrong; the text names every key."""
