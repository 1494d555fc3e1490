"""The application with its OpenAPI document: /openapi.json is generated from the models that validate.

Requests are validated against `models.requests`, responses (with `validate_responses`: in tests) against
the other `models`; so nothing is written twice and the document cannot drift from the behaviour.
"""

from __future__ import annotations

from flask_openapi3 import APIBlueprint, Info, OpenAPI, Tag
from flask_openapi3.models.server import Server
from werkzeug.routing import PathConverter

from ureplicator_common._version import __version__
from ureplicator_controller.api.http.json_bodies import LenientJsonRequest
from ureplicator_controller.api.http.models.responses import ProblemResponse, validated

_ABOUT = """Replicates topics between Kafka clusters. Every controller serves every call. A 2xx to a \
write means that the intent is stored durably; the leader acts on it."""


def new_app(import_name: str, *, validate_responses: bool) -> OpenAPI:
    app = OpenAPI(
        import_name,
        info=Info(title="uReplicator", version=__version__, description=_ABOUT),
        servers=[Server(url=".")],  # below the place of the document, where a proxy may have put it
        doc_ui=False,
        security_schemes={},
        static_folder=None,
        validation_error_status=400,
        validation_error_model=ProblemResponse,
        validate_response=validate_responses,
        validate_response_callback=validated,
    )
    app.request_class = LenientJsonRequest
    app.url_map.converters["path"] = _AnyName
    return app


class _AnyName(PathConverter):
    """A name in a path, `<path:name>`, with whatever characters it has.

    Werkzeug's own takes no slash in front, and so redirects to a path without it, which is another name.
    """

    part_isolating = False
    regex = "(?s:.+?)"


def group(name: str, import_name: str) -> APIBlueprint:
    """Blueprint of the calls of one path prefix. All verbs of a path belong to one group."""
    return APIBlueprint(
        name, import_name, abp_tags=[Tag(name=name)], operation_id_callback=_operation_id
    )


def _operation_id(*, name: str, path: str, method: str) -> str:
    return name
