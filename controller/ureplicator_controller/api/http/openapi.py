"""The application as flask-openapi3 makes it: /openapi.json comes from the very models that check.

Requests are validated against `requests`, answers (where `validate_responses` says so: in tests) against
`answers`; so nothing is written twice and nothing can drift.
"""

from __future__ import annotations

from flask_openapi3 import APIBlueprint, Info, OpenAPI, Tag

from ureplicator_common._version import __version__
from ureplicator_controller.api.http.request_models import LenientJsonRequest
from ureplicator_controller.api.http.response_models import ProblemResponse, validated

_ABOUT = """Copies topics between Kafka clusters. Any controller answers any call. A 2xx to a write \
means that the wish is durable; the controller that leads acts on it."""


def new_app(import_name: str, *, validate_responses: bool) -> OpenAPI:
    app = OpenAPI(
        import_name,
        info=Info(title="uReplicator", version=__version__, description=_ABOUT),
        doc_ui=False,
        security_schemes={},
        static_folder=None,
        validation_error_status=400,
        validation_error_model=ProblemResponse,
        validate_response=validate_responses,
        validate_response_callback=validated,
    )
    app.request_class = LenientJsonRequest

    app.add_url_rule("/openapi.json", "openapi", lambda: app.api_doc)
    return app


def group(name: str, import_name: str) -> APIBlueprint:
    """The calls of one subject. All verbs of a path belong to one group."""
    return APIBlueprint(
        name, import_name, abp_tags=[Tag(name=name)], operation_id_callback=_operation_id
    )


def _operation_id(*, name: str, path: str, method: str) -> str:
    return name
