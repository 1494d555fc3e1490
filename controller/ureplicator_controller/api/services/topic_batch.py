"""Import and removal of many topics of a route in one request, with a result for each.

The fleet is read once, and the source is asked once for all topics. A topic that is already as wanted costs
no request. The others are written side by side, each as an intent of its own: one that is refused, or that
fails, does not stop the others, and a repeated request does what is left. The response waits for the cache
once, at the end.

A topic that the route's patterns want is not removed: it would be whitelisted again at once. Put it on the
blacklist, then it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ureplicator_common.config.live_routes import LiveRoutes
from ureplicator_common.config.route import RouteConfig
from ureplicator_common.errors import OperatingError
from ureplicator_common.kafka import TopicInfo
from ureplicator_common.model import TopicKey, TopicState
from ureplicator_common.znode_contents import Switches
from ureplicator_controller.api.http.problems import Problem, as_problem
from ureplicator_controller.api.services.fleet_cache import FleetCache
from ureplicator_controller.api.services.topic_clusters import TopicClusters
from ureplicator_controller.api.services.topic_import import (
    ImportedTopic,
    Picture,
    TopicImporter,
)
from ureplicator_controller.api.services.topics import TopicService
from ureplicator_controller.core.topics.rules import TopicRules

WRITERS = 100
"""Topics that a request writes side by side: most of their time is waiting for ZooKeeper and brokers, and
what they ask a cluster at the same time is one request (`ureplicator_common.kafka.admin`)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The wish for a topic. `given`: fields of its intent; `unlist`: remove it from the blacklist."""

    given: Mapping[str, Any]
    unlist: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a topic: one of `done`, `removal` and `problem`.

    `removal`: deleted, kept (the route's patterns want it), or unchanged (there is no such topic).
    """

    topic: str
    done: ImportedTopic | None = None
    removal: str = ""
    problem: Problem | None = None


class TopicBatch:
    """Imports and removes topics. Every call may raise Unavailable and ClusterUnavailable.

    `importer` and `topics` do not wait for the cache.
    """

    def __init__(
        self,
        *,
        fleet: FleetCache,
        importer: TopicImporter,
        topics: TopicService,
        clusters: TopicClusters,
        live: LiveRoutes,
        name: str,
    ) -> None:
        self._fleet = fleet
        self._importer = importer
        self._topics = topics
        self._clusters = clusters
        self._live = live
        self._name = name

    def import_topics(
        self, config: RouteConfig, entries: Mapping[str, Entry], *, dry_run: bool
    ) -> list[Outcome]:
        """Import topics; an outcome for each, in their order."""
        picture = self._importer.picture()
        settled = dict(self._settled(config, entries, picture))
        pending = [topic for topic in entries if topic not in settled]
        sources = self._clusters.find_all_in_source(config.route, pending)
        made = _side_by_side(
            {
                topic: partial(
                    self._imported, config, topic, entries[topic], picture, sources[topic], dry_run
                )
                for topic in pending
            }
        )
        if not dry_run:
            self._settle(config, pending)
            made = self._with_warnings(config, made)
        return [(settled | made)[topic] for topic in entries]

    def remove(self, config: RouteConfig, topics: Sequence[str], *, dry_run: bool) -> list[Outcome]:
        """Delete topics, and keep their positions; an outcome for each, in their order."""
        picture = self._importer.picture()
        removed = _side_by_side(
            {topic: partial(self._removed, config, topic, picture, dry_run) for topic in topics}
        )
        if not dry_run:
            self._settle(config, topics)
        return [removed[topic] for topic in topics]

    def _settled(
        self, config: RouteConfig, entries: Mapping[str, Entry], picture: Picture
    ) -> Iterator[tuple[str, Outcome]]:
        """Topics that need no write."""
        for topic, entry in entries.items():
            key = TopicKey(config.route, topic)
            done = self._importer.without_writing(
                key, entry.given, picture=picture, unlist=entry.unlist
            )
            if done is not None:
                yield topic, Outcome(topic, done)

    def _imported(
        self,
        config: RouteConfig,
        topic: str,
        entry: Entry,
        picture: Picture,
        source: Callable[[], TopicInfo],
        dry_run: bool,
    ) -> Outcome:
        done = self._importer.import_one(
            config,
            topic,
            entry.given,
            picture=picture,
            source=source,
            unlist=entry.unlist,
            dry_run=dry_run,
        )
        return Outcome(topic, done)

    def _removed(self, config: RouteConfig, topic: str, picture: Picture, dry_run: bool) -> Outcome:
        key = TopicKey(config.route, topic)
        stored = picture.snapshot.topics.get(key)
        if stored is None or stored.value.state is TopicState.DELETING:
            return Outcome(topic, removal="unchanged")
        if key not in picture.snapshot.blacklist and self._wants(
            config, topic, picture.snapshot.switches
        ):
            return Outcome(topic, removal="kept")
        if not dry_run:
            self._topics.delete(key, is_auto_whitelisted=False)
        return Outcome(topic, removal="deleted")

    def _wants(self, config: RouteConfig, topic: str, switches: Switches) -> bool:
        """True if the patterns of the route, as they count now, want a topic."""
        now = self._live.config(config.route, switches.route_settings)
        rules = TopicRules.of(now, fleet=self._name)
        is_matched = rules.auto is not None and rules.auto.matches(topic)
        return is_matched or topic == rules.heartbeat_topic

    def _with_warnings(
        self, config: RouteConfig, made: Mapping[str, Outcome]
    ) -> dict[str, Outcome]:
        new = {
            topic: outcome.done
            for topic, outcome in made.items()
            if outcome.done is not None and outcome.done.before is None
        }
        if not new:
            return dict(made)
        targets = {topic: done.made.intent.target_topic for topic, done in new.items()}
        found, unchecked = self._clusters.all_limit_warnings(config.route, targets)
        warned = {
            topic: Outcome(
                topic,
                replace(done, warnings=(*found.get(topic, ()), *filter(None, [unchecked]))),
            )
            for topic, done in new.items()
        }
        return {**made, **warned}

    def _settle(self, config: RouteConfig, topics: Sequence[str]) -> None:
        paths = self._fleet.paths
        keys = [TopicKey(config.route, topic) for topic in topics]
        self._fleet.settle(*map(paths.topic, keys), *map(paths.blacklisted, keys))


def _side_by_side(works: Mapping[str, Callable[[], Outcome]]) -> dict[str, Outcome]:
    """Run the work of each topic, `WRITERS` at a time, within the context of the request."""
    with ThreadPoolExecutor(WRITERS, thread_name_prefix="topic-batch") as pool:
        futures = {
            topic: pool.submit(copy_context().run, _outcome, topic, work)
            for topic, work in works.items()
        }
        return {topic: future.result() for topic, future in futures.items()}


def _outcome(topic: str, work: Callable[[], Outcome]) -> Outcome:
    try:
        return work()
    except Problem as problem:
        return Outcome(topic, problem=problem)
    except OperatingError as error:
        return Outcome(topic, problem=as_problem(error))
