"""Checks of the routes of a cutover: both directions, names, lanes, other cutovers, and the fence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ureplicator_common.cutovers import FenceKind
from ureplicator_common.model import LaneKind, Route, TopicKey, TopicState
from ureplicator_controller.core.balance.pools import route_workers
from ureplicator_controller.core.cutover.acl_fence import NOT_HELD
from ureplicator_controller.core.cutover.facts import Facts, Level, PlanFinding, counted, or_ok
from ureplicator_controller.core.cutover.requests import known
from ureplicator_controller.core.cutover.requests import names as all_names
from ureplicator_controller.core.state.exclusions import is_configured

_NO_WAY_BACK = "or plan without a way back"


def routes(facts: Facts) -> Iterable[PlanFinding]:
    """The route that is left, and its workers."""
    available = route_workers(facts.snapshot, facts.route).available
    text = f"{counted(available, 'worker')} may copy it"
    return or_ok(_route(facts, facts.route, ""), "route", str(facts.route), text)


def way_back(facts: Facts) -> Iterable[PlanFinding]:
    """The route of the reverse copy, its workers, and what it would find of these topics."""
    back, check = facts.back, "way back"
    if not facts.plan.way_back:
        text = f"what clients write to {back.source} will not be copied to {back.target}"
        yield PlanFinding(str(back), check, Level.WARNING, text)
        return
    if back not in facts.routes:
        text, advice = "this route is not configured", f"configure it, {_NO_WAY_BACK}"
        yield PlanFinding(str(back), check, Level.BLOCKS, text, advice)
        return
    found = [*_route(facts, back, _NO_WAY_BACK), *_topics_back(facts), *_harm_back(facts)]
    available = route_workers(facts.snapshot, back).available
    yield from or_ok(found, check, str(back), f"{counted(available, 'worker')} may copy it")


def _route(facts: Facts, route: Route, otherwise: str) -> Iterator[PlanFinding]:
    snapshot, check = facts.snapshot, "way back" if otherwise else "route"

    def found(level: Level, text: str, advice: str) -> PlanFinding:
        return PlanFinding(
            str(route), check, level, text, ", ".join(filter(None, (advice, otherwise)))
        )

    if not is_configured(snapshot, route):
        text = "the leader does not have this route in its configuration"
        yield found(Level.BLOCKS, text, "give all controllers the same file")
    if route in snapshot.switches.paused_routes:
        yield found(Level.BLOCKS, "the route is paused", "resume it")
    workers = route_workers(snapshot, route)
    if not workers.available:
        yield found(Level.BLOCKS, "no worker may copy it", "start workers, with the route's tags")
    elif workers.shortage:
        yield found(Level.WARNING, f"it has {workers.shortage}", "start workers")


def _topics_back(facts: Facts) -> Iterator[PlanFinding]:
    """Topics that the other route has, and that no cutover has left there."""
    for topic in facts.plan.topics:
        stored = facts.snapshot.topics.get(TopicKey(facts.back, topic))
        if stored is None or stored.value.state is TopicState.REVERSED:
            continue
        text = f"{facts.back} has this topic already: {stored.value.state}"
        advice = "delete it from that route"
        yield PlanFinding(topic, "way back", Level.BLOCKS, text, advice)


def _harm_back(facts: Facts) -> Iterator[PlanFinding]:
    for drift in facts.drift_back:
        for text in drift.harm:
            yield PlanFinding(
                drift.topic.target, "way back", Level.WARNING, f"on {facts.route.source}: {text}"
            )


def names(facts: Facts) -> Iterable[PlanFinding]:
    """Names of the topics at the target: the way back is under the same ones."""
    text = "topics have the same names at the target"
    return or_ok(_names(facts), "names", str(facts.route), text)


def _names(facts: Facts) -> Iterator[PlanFinding]:
    settings = facts.routes.get(facts.back)
    for topic, intent in facts.intents.items():
        target = intent.target_topic
        if target != topic and facts.plan.way_back:
            text = f"its name at the target is {target}"
            advice = (
                f"a way back needs the same names: remove the naming of the route, {_NO_WAY_BACK}"
            )
            yield PlanFinding(topic, "names", Level.BLOCKS, text, advice)
        elif target != topic:
            text = f"its name at the target is {target}"
            yield PlanFinding(topic, "names", Level.WARNING, text, "give it to its clients, too")
        elif facts.plan.way_back and settings and settings.target_topic(topic) != topic:
            text = f"{facts.back} would name it {settings.target_topic(topic)}"
            advice = f"remove the naming of that route, {_NO_WAY_BACK}"
            yield PlanFinding(topic, "names", Level.BLOCKS, text, advice)


def lanes(facts: Facts) -> Iterable[PlanFinding]:
    """Topics whose records are changed on their way."""
    return or_ok(_lanes(facts), "lane", str(facts.route), "records are copied as they are")


def _lanes(facts: Facts) -> Iterator[PlanFinding]:
    ways = [facts.route, facts.back] if facts.plan.way_back else [facts.route]
    level = Level.BLOCKS if facts.plan.way_back else Level.WARNING
    for route in ways:
        settings = facts.routes.get(route)
        for topic in facts.plan.topics if settings else ():
            transform = settings.transform(topic) if settings else None
            if transform is not None and transform.lane is not LaneKind.RAW:
                text = f"on {route} its records go through {transform.description}"
                advice = "clients find other records at the target, and no audit compares them"
                if facts.plan.way_back:
                    advice = f"no way back gives what was: leave the topic out, {_NO_WAY_BACK}"
                yield PlanFinding(topic, "lane", level, text, advice)


def other_cutovers(facts: Facts) -> Iterable[PlanFinding]:
    """Topics that are part of another cutover under way."""
    text = "no other cutover of these topics is under way"
    return or_ok(_other_cutovers(facts), "other cutovers", str(facts.route), text)


def _other_cutovers(facts: Facts) -> Iterator[PlanFinding]:
    for name in all_names(facts.snapshot):
        found = known(facts.snapshot, name)
        if name == facts.name or not found.is_under_way:
            continue
        plans = [part.plan for part in (found.request, found.cutover) if part is not None]
        taken = {
            topic
            for plan in plans
            if plan.route in (facts.route, facts.back)
            for topic in plan.topics
        }
        for topic in sorted(taken & facts.plan.topics.keys()):
            text = f"the cutover {name} has it: {found.state}"
            advice = "wait for its end, or abort it"
            yield PlanFinding(topic, "other cutovers", Level.BLOCKS, text, advice)


_SEEN = "writes past it are seen and named"


def fence(facts: Facts) -> Iterable[PlanFinding]:
    """What the fence will and will not hold."""
    plan, cluster = facts.plan, facts.route.source
    if facts.fence_refusal:
        advice = "put that right, or choose another fence"
        yield PlanFinding(plan.fence, "fence", Level.BLOCKS, facts.fence_refusal, advice)
    elif plan.fence is FenceKind.NONE:
        text = f"nothing keeps producers from writing to {cluster}: {_SEEN}"
        advice = "stop all producers of these topics before the start"
        yield PlanFinding("none", "fence", Level.WARNING, text, advice)
    elif plan.fence is FenceKind.COMMAND:
        text = f"{plan.fence_command} is to hold all producers at {cluster}: {_SEEN}"
        advice = "what it does not reach, such as clients past a gateway, it does not hold"
        yield PlanFinding("command", "fence", Level.OK, text, advice)
    else:
        who = f"only {plan.principal}" if plan.way_back else "nobody"
        text = f"{who} may write to these topics at {cluster}; readers go on, {_SEEN}"
        yield PlanFinding("acl", "fence", Level.OK, text, NOT_HELD)
