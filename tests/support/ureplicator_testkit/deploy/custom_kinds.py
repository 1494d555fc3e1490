"""Schemas of the kinds that operators of Prometheus and KEDA add to Kubernetes, as JSON schemas.

Kubernetes' own schemas do not have these kinds. Each schema has the fields that the chart uses and no
others, so a field that is new in the chart has to be looked up and added here:

    ServiceMonitor, PrometheusRule   API reference of the Prometheus operator, monitoring.coreos.com/v1
    ScaledObject                     KEDA's specification of ScaledObject, keda.sh/v1alpha1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
TEXT: Schema = {"type": "string", "minLength": 1}
TEXTS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT: Schema = {"type": "integer", "minimum": 0}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d))+$"}


def fields(required: Mapping[str, Schema], **optional: Schema) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def items(schema: Schema) -> Schema:
    return {"type": "array", "items": schema, "minItems": 1}


def _kind(api_version: str, kind: str, spec: Schema) -> Schema:
    named = {"apiVersion": {"const": api_version}, "kind": {"const": kind}}
    return fields({**named, "metadata": fields({"name": TEXT}, labels=TEXTS), "spec": spec})


_SECRET_KEY = fields({"name": TEXT, "key": TEXT})
_ENDPOINT = fields(
    {"port": TEXT, "path": TEXT, "interval": DURATION, "scrapeTimeout": DURATION},
    scheme={"enum": ["http", "https"]},
    authorization=fields({"credentials": _SECRET_KEY}),
    tlsConfig=fields(
        {},
        ca=fields({}, secret=_SECRET_KEY, configMap=_SECRET_KEY),
        serverName=TEXT,
        insecureSkipVerify={"type": "boolean"},
    ),
)
_ALERT = fields(
    {"alert": TEXT, "expr": TEXT, "annotations": TEXTS, "labels": TEXTS}, **{"for": DURATION}
)
_SCALE_DOWN = fields(
    {
        "stabilizationWindowSeconds": COUNT,
        "policies": items(
            fields({"type": {"enum": ["Pods", "Percent"]}, "value": COUNT, "periodSeconds": COUNT})
        ),
    }
)
_SCALED_OBJECT = fields(
    {
        "scaleTargetRef": fields({"apiVersion": TEXT, "kind": TEXT, "name": TEXT}),
        "minReplicaCount": COUNT,
        "maxReplicaCount": COUNT,
        "triggers": items(fields({"type": {"const": "prometheus"}, "metadata": TEXTS})),
    },
    advanced=fields(
        {"horizontalPodAutoscalerConfig": fields({"behavior": fields({"scaleDown": _SCALE_DOWN})})}
    ),
)
_RULES = fields({"groups": items(fields({"name": TEXT, "rules": items(_ALERT)}))})

SCHEMAS: Mapping[tuple[str, str], Schema] = {
    (api_version, kind): _kind(api_version, kind, spec)
    for api_version, kind, spec in (
        (
            "monitoring.coreos.com/v1",
            "ServiceMonitor",
            fields({"selector": fields({"matchLabels": TEXTS}), "endpoints": items(_ENDPOINT)}),
        ),
        ("monitoring.coreos.com/v1", "PrometheusRule", _RULES),
        ("keda.sh/v1alpha1", "ScaledObject", _SCALED_OBJECT),
    )
}
