"""Pages below a path of a reverse proxy, such as https://ops.example/ureplicator/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
import requests

from ureplicator_controller.api import dashboard
from ureplicator_testkit.control.command import run, serving
from ureplicator_testkit.control.rest_fixture import NewRest, RestFixture
from ureplicator_testkit.fleet.prefix_proxy import PREFIX, below_prefix

SHOWN = ("topic?topic=orders", "worker?worker=w1", "groups", "cutovers", "cutover?name=move")
PAGES = ("", "list", "login", *(f"show/{each}" for each in SHOWN))
STATIC = Path(dashboard.__file__).parent / "static"
SCRIPTS = [file for file in sorted(STATIC.rglob("*.js")) if "uplot" not in file.parts]
REFERENCE = re.compile(r'\b(?:href|src|action)="([^"]*)"|\burl=([^"]+)"')
IMPORTED = re.compile(r'^import[^"\n]*"([^"]+)"', re.MULTILINE)
TOKEN = "operator-0123456789abcdef"  # noqa: S105  # of this test


@pytest.fixture
def closed(new_rest: NewRest, tmp_path: Path) -> RestFixture:
    operators = tmp_path / "operators"
    operators.write_text(f"olga {TOKEN}\n")
    return new_rest(access={"mode": "tokens", "operator_tokens_file": str(operators)})


@pytest.fixture
def address(rest: RestFixture) -> Iterator[str]:
    with serving(rest) as url, below_prefix(url) as address:
        yield address


@pytest.fixture
def closed_address(closed: RestFixture) -> Iterator[str]:
    with serving(closed) as url, below_prefix(url) as address:
        yield address


@pytest.mark.parametrize("page", PAGES)
def test_each_reference_of_a_page_stays_below_it(
    rest: RestFixture, address: str, page: str
) -> None:
    rest.put_leader()
    text = requests.get(address + page, timeout=10).text
    found = ["".join(match) for match in REFERENCE.findall(text)]
    references = {match for match in found if not match.startswith("data:")}
    assert references
    for reference in references:
        status = requests.get(urljoin(address + page, reference), timeout=10).status_code
        assert status in (200, 503), reference


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(STATIC)))
def test_each_import_of_a_script_is_a_file_beside_it(script: Path) -> None:
    text = script.read_text()
    for reference in IMPORTED.findall(text):
        assert (script.parent / reference).is_file(), reference
    assert not re.search(r"""(?:fetch|EventSource|assign|import)\(["'`]/|href = ["'`]/""", text)


def test_the_login_leads_to_the_pages_and_its_cookie_to_nothing_else(closed_address: str) -> None:
    with requests.Session() as session:
        for page in PAGES:
            shown = session.get(closed_address + page, timeout=10)
            assert shown.url == f"{closed_address}login", page
        wrong = session.post(shown.url, data={"token": "forged"}, timeout=10)
        assert (wrong.status_code, len(session.cookies)) == (401, 0)
        shown = session.post(shown.url, data={"token": TOKEN}, timeout=10)
        assert (shown.status_code, shown.url) == (200, closed_address)
        assert session.cookies.list_paths() == [PREFIX]
        assert session.get(f"{closed_address}topics", timeout=10).status_code == 200
        out = session.post(f"{closed_address}logout", timeout=10)
        assert (out.url, len(session.cookies)) == (f"{closed_address}login", 0)


def test_commands_take_the_address_with_the_path(address: str) -> None:
    for url in (address, address.rstrip("/")):
        assert run("topics", "list", url=url).exit_code == 0
        assert run("topics", "add", "orders", url=url).exit_code in (0, 1)


def test_the_description_names_the_place_that_it_is_read_from(new_rest: NewRest) -> None:
    """OpenAPI 3.1, Server Object: a relative URL is resolved against the place of the document."""
    document = new_rest(described=True).call("GET", "/openapi.json").get_json()
    (server,) = document["servers"]
    there = urljoin(f"https://ops.example{PREFIX}/openapi.json", server["url"])
    assert urlsplit(there).path == f"{PREFIX}/"
