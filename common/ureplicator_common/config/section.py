"""Base class of every section of the configuration, and the faults that its checks report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from ureplicator_common.printable import did_you_mean


@dataclass(frozen=True, slots=True)
class Fault:
    """One configuration error with its key; an empty key is the file as a whole."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}" if self.key else self.message


class Faults(ValueError):
    """Several faults of one check; the keys are relative to the value that was checked."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = tuple(faults)


class Section(BaseModel):
    """A frozen section that refuses unknown keys; the docstring below a field describes it."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", coerce_numbers_to_str=True, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads `yes` and `on` as true, which would count as 1."""
        if isinstance(value, bool) and _kind_of(cls, info) in (int, float):
            raise ValueError(f"expected a number, not {str(value).lower()}")
        return value


def faults_of(error: ValidationError, *, root: type[Section] = Section) -> list[Fault]:
    """Every error of pydantic, with the key as the file has it. `root`: the section that was checked."""
    faults = []
    for detail in error.errors(include_url=False):
        key = ".".join(str(part) for part in detail["loc"] if part not in ("properties", "[key]"))
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Faults):
            faults += [
                Fault(".".join(filter(None, (key, fault.key))), fault.message)
                for fault in cause.faults
            ]
        else:
            text = _message(detail["type"], detail["msg"])
            if detail["type"] == "extra_forbidden":
                text += did_you_mean(str(detail["loc"][-1]), _fields_at(root, detail["loc"][:-1]))
            faults.append(Fault(key, text))
    return faults


def _fields_at(root: type[Section], place: Sequence[int | str]) -> set[str]:
    """Names of the fields of the section at a place; numbers and names of entries lead nowhere."""
    sections = {root}
    for part in place:
        fields = [
            section.model_fields[part] for section in sections if part in section.model_fields
        ]
        sections = {
            section for field in fields for section in _sections_in(field.annotation)
        } or sections
    return {name for section in sections for name in section.model_fields}


def _sections_in(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections_in(argument)


def _kind_of(section: type[Section], info: ValidationInfo) -> Any:
    return section.model_fields[info.field_name].annotation if info.field_name else None


_MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "unknown key",
    "model_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "mapping_type": "expected a mapping",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
}


def _message(kind: str, message: str) -> str:
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    return message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
