"""Generated parts of the docs are up to date, and samples of responses are as their calls declare."""

from __future__ import annotations

import pytest

from ureplicator_common.znodes.paths import Paths
from ureplicator_testkit.docs import rest_api
from ureplicator_testkit.docs.generated import PARTS, GeneratedPart
from ureplicator_testkit.docs.pages import COMMAND, with_part
from ureplicator_testkit.docs.samples import blocks
from ureplicator_testkit.docs.znode_tree import znode_rows


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_generated_parts_are_up_to_date(part: GeneratedPart) -> None:
    text = part.page.read_text()
    assert with_part(text, part.name, part.content()) == text, f"run: {COMMAND}"


def test_every_node_of_the_tree_is_described() -> None:
    paths = Paths("fleet")
    nodes = {*paths.skeleton, paths.leader, paths.settings, paths.history, paths.isolated}
    described = {f"{paths.root}/{row.path}".partition("/<")[0] for row in znode_rows()}
    assert described == nodes


def test_every_sample_response_is_as_its_call_declares() -> None:
    models = rest_api.response_models()
    found = [(block, call) for block in blocks() if (call := block.call)]
    assert {block.page for block, _ in found} >= {"README.md", "docs/rest-api.md"}
    for block, call in found:
        model = models[call]
        if model is not None:
            model.model_validate_json(block.json_text(), strict=True)
