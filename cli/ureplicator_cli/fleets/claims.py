"""`ureplicator claims`: claims of fleets on the topics of target clusters."""

from __future__ import annotations

from typing import Any

import click

from ureplicator_cli.options import ListByDefault, client_options, route_options
from ureplicator_cli.output import confirm, end_if_json, print_table, warn
from ureplicator_cli.rest_client import quoted, request
from ureplicator_common.clock import utc_text


@click.group(cls=ListByDefault)
def claims() -> None:
    """Show which fleet has claimed which target topic.

    Without a command, lists the claims. Routes with `claim_targets` write them.
    """


@claims.command("list")
@client_options
@route_options
def list_claims(url: str, as_json: bool, src: str, dst: str) -> None:
    """List the claims of all fleets on the routes' target clusters."""
    body = request("GET", url, "/claims", src=src, dst=dst)
    end_if_json(as_json, body)
    heads = ("target topic", "fleet", "copied from", "since", "")
    print_table("claims", heads, [_row(row) for row in body["claims"]])
    for row in body["notRead"]:
        warn(f"claims on {row['cluster']} are not known: {row['reason']}")


@claims.command("withdraw")
@click.argument("topic")
@click.option("--fleet", required=True, help="Fleet that is gone.")
@client_options
@route_options
def withdraw_claim(topic: str, fleet: str, url: str, as_json: bool, src: str, dst: str) -> None:
    """Withdraw the claim of a fleet that is gone on the target topic TOPIC.

    A fleet that lives writes its claim again, unless another one has claimed the topic meanwhile.
    """
    path = f"/claims/{quoted(topic)}"
    body = request("DELETE", url, path, src=src, dst=dst, query={"fleet": fleet})
    confirm(
        body,
        as_json,
        "{withdrawn[targetTopic]}: the claim of fleet {withdrawn[fleet]} is withdrawn",
    )


def _row(claim: dict[str, Any]) -> tuple[str, ...]:
    since = utc_text(claim["sinceMs"]) if claim["sinceMs"] else "not known"
    return (
        f"{claim['cluster']}/{claim['targetTopic']}",
        claim["fleet"],
        f"{claim['route']}/{claim['sourceTopic']}",
        since,
        "" if claim["holds"] else "behind another",
    )
