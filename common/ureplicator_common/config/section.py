"""Base class of every section of the configuration, and the faults that its checks report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError


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


def faults_of(error: ValidationError) -> list[Fault]:
    """Every error of pydantic, with the key as the file has it."""
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
            faults.append(Fault(key, _message(detail["type"], detail["msg"])))
    return faults


def _message(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return "unknown key"
    return message.removeprefix("Value error, ").removeprefix("Input ").removeprefix("String ")
