"""Reading of ZooKeeper and the clusters, all at the same time."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from ureplicator_cli.doctor.facts import ZooKeeperFacts
from ureplicator_common.config.clusters import ZookeeperSettings
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.config.settings import Settings
from ureplicator_common.coordination import Coordination, Create, Delete
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka.preflight import ClusterFacts, Right
from ureplicator_common.model import position_group
from ureplicator_common.znodes.paths import Paths

MAX_AT_ONCE = 16
TARGET_RIGHTS = (Right.CREATE_TOPICS, Right.PRODUCER_IDS, Right.TRANSACTIONS, Right.GROUP)
SAME_OFFSETS_RIGHTS = (Right.CONTROL_RECORDS, Right.DELETE_RECORDS)


def read_clusters(settings: Settings, timeout_s: float) -> Mapping[str, ClusterFacts]:
    """Facts by cluster. Raises ConfigurationError."""
    names = sorted({cluster for config in settings.routes for cluster in _clusters(config)})
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        found = pool.map(lambda name: _cluster(settings, name, timeout_s), names)
        return dict(zip(names, found, strict=True))


def _clusters(config: RouteConfig) -> tuple[str, str]:
    return config.route.source, config.route.target


def _cluster(settings: Settings, name: str, timeout_s: float) -> ClusterFacts:
    from ureplicator_common.kafka.preflight_requests import read_cluster

    used = [config for config in settings.routes if name in _clusters(config)]
    targets = [config for config in used if config.route.target == name]
    publishes = any(config.publish_to_source for config in used)
    sources = (Right.GROUP,) if publishes else ()
    filled = [config for config in targets if config.offsets.same]
    named = (filled or targets or used)[0]
    return read_cluster(
        name,
        settings.cluster(name),
        topic=f"{named.naming.prefix}ureplicator-doctor",
        group=position_group(fleet=settings.fleet, route=named.route),
        transactional_id=f"{settings.fleet}.doctor",
        rights=(TARGET_RIGHTS if targets else sources) + (SAME_OFFSETS_RIGHTS if filled else ()),
        timeout_s=timeout_s,
    )


def read_zookeeper(settings: Settings, timeout_s: float) -> ZooKeeperFacts:
    """Facts of the ensemble. Raises ConfigurationError."""
    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # the findings say it
    found = settings.zookeeper
    addresses = [address.strip() for address in found.hosts.split(",")]
    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        probed = pool.map(lambda each: _refusal(found, each, "", timeout_s), addresses)
        servers = dict(zip(addresses, probed, strict=True))
    responding = [address for address, failure in servers.items() if not failure]
    tree = Paths(settings.fleet).root
    refusal = _refusal(found, ",".join(responding), tree, timeout_s) if responding else ""
    return ZooKeeperFacts(servers, tree, bool(found.digest_file), refusal)


def _refusal(settings: ZookeeperSettings, hosts: str, tree: str, timeout_s: float) -> str:
    """Failure to connect, and to use a tree if one is given; "" without one."""
    from ureplicator_common.coordination.zookeeper import open_coordination

    alone = settings.model_copy(update={"hosts": hosts})
    with closing(open_coordination(alone, request_timeout_s=timeout_s)) as coordination:
        try:
            coordination.connect(timeout_s)
            if tree:
                _use(coordination, tree)
        except OperatingError as error:
            return str(error)
    return ""


def _use(coordination: Coordination, tree: str) -> None:
    """Read the tree, and create and delete a node in one transaction, which nobody sees."""
    while tree and coordination.get(tree) is None:
        tree = tree.rpartition("/")[0]
    coordination.children(tree or "/")
    path = f"{tree}/doctor-{uuid.uuid4().hex}"
    coordination.transact([Create(path, b""), Delete(path)])
