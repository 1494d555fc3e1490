from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from flask import Blueprint, Flask
from pydantic import BaseModel

_View = TypeVar("_View", bound=Callable[..., Any])
_Responses = Mapping[HTTPStatus, type[BaseModel] | dict[str, Any] | None]

class Info(BaseModel):
    title: str
    version: str
    description: str | None = None

class Tag(BaseModel):
    name: str
    description: str | None = None

class OpenAPI(Flask):
    components_schemas: dict[str, Any]
    validate_response: bool | None
    def __init__(
        self,
        import_name: str,
        *,
        info: Info | None = None,
        security_schemes: dict[str, Any] | None = None,
        operation_id_callback: Callable[..., str] = ...,
        validation_error_status: str | int = 422,
        validation_error_model: type[BaseModel] = ...,
        doc_ui: bool = True,
        validate_response: bool | None = None,
        validate_response_callback: Callable[[Any, Any], Any] = ...,
        **kwargs: Any,
    ) -> None: ...
    @property
    def api_doc(self) -> dict[str, Any]: ...
    def register_api(self, api: APIBlueprint, **options: Any) -> None: ...

class APIBlueprint(Blueprint):
    def __init__(
        self,
        name: str,
        import_name: str,
        *,
        abp_tags: Sequence[Tag] | None = None,
        abp_responses: _Responses | None = None,
        operation_id_callback: Callable[..., str] = ...,
        **kwargs: Any,
    ) -> None: ...
    def get(  # type: ignore[override]
        self, rule: str, *, responses: _Responses, **options: Any
    ) -> Callable[[_View], _View]: ...
    def post(  # type: ignore[override]
        self, rule: str, *, responses: _Responses, **options: Any
    ) -> Callable[[_View], _View]: ...
    def put(  # type: ignore[override]
        self, rule: str, *, responses: _Responses, **options: Any
    ) -> Callable[[_View], _View]: ...
    def delete(  # type: ignore[override]
        self, rule: str, *, responses: _Responses, **options: Any
    ) -> Callable[[_View], _View]: ...
