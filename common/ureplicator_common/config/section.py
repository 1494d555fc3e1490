"""Base class of every section of the configuration, and the faults that its checks report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


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
