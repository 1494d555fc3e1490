"""Options and groups that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ureplicator_cli import rest_client

F = TypeVar("F", bound=Callable[..., Any])

_RATE_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}

_url_option = click.option(
    "--url",
    envvar="UREPLICATOR_URL",
    default=rest_client.DEFAULT_URL,
    show_default=True,
    show_envvar=True,
    help="REST address of any controller of the fleet.",
)
_token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    envvar="UREPLICATOR_TOKEN_FILE",
    show_envvar=True,
    expose_value=False,
    callback=lambda context, _, path: rest_client.use(context, token_file=path),
    help="File with the token to log in with.",
)
_ca_option = click.option(
    "--ca-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    envvar="UREPLICATOR_CA_FILE",
    show_envvar=True,
    expose_value=False,
    callback=lambda context, _, path: rest_client.use(context, ca_file=path),
    help="Certificates of authorities that sign for an https:// URL.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print the JSON response instead of text."
)


def url_option(command: F) -> F:
    """Options for the address of REST, and the login there."""
    return _url_option(login_options(command))


def login_options(command: F) -> F:
    """Options for the login at REST, where a command takes its addresses otherwise."""
    return _token_option(_ca_option(command))


def client_options(command: F) -> F:
    return url_option(json_option(command))


def route_options(command: F) -> F:
    """A fleet with one route needs neither."""
    command = click.option("--dst", default="", help="Target cluster of the route.")(command)
    return click.option("--src", default="", help="Source cluster of the route.")(command)


def config_options(command: F) -> F:
    """The configuration file of the fleet, and keys of it that are set otherwise."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key of CONFIG, as in controller.port=9001. Repeatable.",
    )(command)
    return click.argument("config", type=click.Path(path_type=Path))(command)


def config_file_options(command: F) -> F:
    """As `config_options`, for commands whose argument is something else."""
    command = click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override one key, as in controller.port=9001. Repeatable.",
    )(command)
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        required=True,
        help="Configuration file of the fleet.",
    )(command)


class Rate(click.ParamType[int]):
    """Bytes per second: 500k, 20M."""

    name = "rate"

    def convert(self, value: Any, parameter: Any, context: Any) -> int:
        if isinstance(value, int):
            return value
        number, unit = value.rstrip("kKmMgG"), value[len(value.rstrip("kKmMgG")) :].lower()
        if not number.isdecimal() or unit not in _RATE_UNITS or not int(number):
            self.fail(f"{value!r} is not a rate in bytes per second, such as 500k or 20M")
        return int(number) * _RATE_UNITS[unit]


_OF_AN_AUDIT = (
    click.option(
        "--route", "route_name", default="", help="SOURCE.TARGET; needless with one route."
    ),
    click.option(
        "--partition", "numbers", type=int, multiple=True, help="Only this one. Repeatable."
    ),
    click.option("--rate", type=Rate(), default=0, help="Bytes per second of each side: 20M."),
    click.option(
        "--master", default="local[*]", show_default=True, help="local[N]: N partitions at a time."
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


def audit_options(command: F) -> F:
    """Partitions, rate and form of the result, where this machine compares."""
    for option in reversed(_OF_AN_AUDIT):
        command = option(command)
    return command


class SectionedGroup(click.Group):
    """A group whose help lists the commands under headings."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sections: dict[str, tuple[click.Command, ...]] = {}

    def add_section(self, title: str, *commands: click.Command) -> None:
        self._sections[title] = commands
        for command in commands:
            self.add_command(command)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        names = [command.name or "" for section in self._sections.values() for command in section]
        widest = max(map(len, names))
        limit = formatter.width - 6 - widest
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        ((command.name or "").ljust(widest), command.get_short_help_str(limit))
                        for command in commands
                    ]
                )


class ListByDefault(click.Group):
    """A group in which `GROUP` without a command, also with options, is `GROUP list`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        bare = not args or (args[0].startswith("-") and args[0] not in context.help_option_names)
        bare = bare and not context.resilient_parsing  # completion of the name of a command
        return super().parse_args(context, ["list", *args] if bare else args)


class ShowByDefault(click.Group):
    """A group in which `GROUP`, also with a name or options, is `GROUP show`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in context.help_option_names)
        named = named or (context.resilient_parsing and not args)
        return super().parse_args(context, args if named else ["show", *args])
