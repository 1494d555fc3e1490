"""Result of an audit in a folder.

result.json         the whole result, rewritten after each round: what `--resume` goes on from
findings.parquet    the findings, written by Spark at the end
partitions.parquet  the counts of each partition, the same
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from ureplicator_common.errors import PermanentError
from ureplicator_common.whole_file import whole_file
from ureplicator_worker.audit.result import AuditResult

RESULT = "result.json"
FINDINGS = "findings.parquet"
PARTITIONS = "partitions.parquet"
_FINDING = "partition int, kind string, source_offset long, target_offset long, detail string"
_PARTITION = (
    "partition int, verified_from long, verified_to long, target_to long, end long, compared long,"
    " compared_bytes long, missing long, repeated long, altered long, reordered long, foreign long,"
    " compacted long, notes array<string>, findings_kept long,"
    " uncompared string, shifted long"
)


class Frames(Protocol):
    """A SparkSession."""

    def createDataFrame(self, data: Any, schema: Any) -> Any: ...


def save(folder: Path, result: AuditResult) -> None:
    """Replace the JSON at once, so that an interrupted audit leaves a whole one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / RESULT) as file:
            file.write(json.dumps(result.to_json(), indent=1).encode())
    except OSError as error:
        raise PermanentError(f"{folder}: {error.strerror}") from error


def load(folder: Path) -> AuditResult | None:
    """None: there is no result. Raises PermanentError."""
    path = folder / RESULT
    try:
        return AuditResult.from_json(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PermanentError(f"{path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PermanentError(f"{path} is not the result of an audit: it is not JSON") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PermanentError(f"{path} is not the result of an audit: its fields differ") from error


def save_parquet(spark: Frames, folder: Path, result: AuditResult) -> None:
    tables = ((FINDINGS, _FINDING, result.findings), (PARTITIONS, _PARTITION, result.partitions))
    for name, schema, rows in tables:
        frame = spark.createDataFrame([_row(row) for row in rows], schema)
        frame.coalesce(1).write.mode("overwrite").parquet((folder / name).absolute().as_uri())


def _row(value: Any) -> dict[str, Any]:
    row = asdict(value)
    return {name: list(cell) if isinstance(cell, tuple) else cell for name, cell in row.items()}
