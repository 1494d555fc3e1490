"""Options with several values: `--topics a b c`, `--topics a,b`, `--topics a --topics b`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click

_COMMA = re.compile(r",(?![^{]*\})")
"""A comma between patterns, not one of a repetition such as `[0-9]{1,3}`."""


class ManyValues(click.Command):
    """A command whose repeatable options take all words up to the next option."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        names = {
            name
            for parameter in self.params
            if isinstance(parameter, click.Option) and parameter.multiple
            for name in parameter.opts
        }
        return super().parse_args(context, list(_repeated(args, names)))


def _repeated(args: Sequence[str], names: set[str]) -> Iterator[str]:
    """The words with the option's name before each of its values."""
    option, is_first = "", False
    for word in args:
        if word.startswith("-"):
            option, is_first = word if word in names else "", True
            yield word
        elif option and not is_first:
            yield from (option, word)
        else:
            is_first = False
            yield word


def patterns(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> Any:
    """Values of an option that may hold several patterns each."""
    found = (text.strip() for value in given for text in _COMMA.split(value))
    return tuple(text for text in found if text)
