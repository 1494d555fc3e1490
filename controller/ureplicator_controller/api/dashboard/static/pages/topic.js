// One topic: its partitions with positions and lag, its events, audit, differing settings and groups.
import { actionButton, deletion, restart, tileActions } from "../grid/actions.js";
import { given } from "../grid/address.js";
import { byId, table } from "../grid/elements.js";
import { HEADS, cellsOf } from "../grid/history.js";
import { duration, since } from "../grid/times.js";
import { link, workerPage } from "../grid/links.js";
import { acts, limitActs, positionActs } from "./acts.js";
import { lagChart } from "./lag.js";
import { facts, follow, part, title } from "./parts.js";

const asked = given();
const topic = asked.get("topic") || "";
const chosen = new URLSearchParams({ src: asked.get("src") || "", dst: asked.get("dst") || "" });
const route = `${chosen.get("src")}.${chosen.get("dst")}`;
const name = encodeURIComponent(topic);

function offsetsOf(shift) {
  if (!shift) return "";
  const [by, since] = [shift.shift, shift.since].map((offset) => offset.toLocaleString("en"));
  return shift.shift ? `shifted by ${by} since ${since} (${shift.reason})` : `same since ${since}`;
}

function topicOffsetsOf(body) {
  const known = Object.values(body.offsets);
  const same = known.filter((each) => each.shift === 0).length;
  if (!known.length) return "";
  return same === body.partitions ? "same" : `same in ${same} of ${body.partitions} partitions`;
}

function partitionsOf(body) {
  const hasOffsets = Object.keys(body.offsets).length > 0;
  const reasons = new Map(body.mismatches.map((each) => [each.partition, each.reason]));
  const rows = Array.from({ length: body.partitions }, (_, number) => {
    const [ideal = ""] = Object.keys(body.idealState[number] || {});
    const actual = Object.entries(body.externalView[number] || {}).map(([worker, state]) => `${worker} ${state}`);
    const lag = body.progress[number] || {};
    return [
      number,
      ideal ? link(ideal, workerPage(ideal)) : "no worker",
      actual.join(", ") || "no worker",
      lag.position,
      lag.logEnd,
      lag.lagRecords,
      lag.heldRecords,
      duration(lag.lagSeconds),
      reasons.get(number) || body.excluded[number] || lag.reason || "",
      ...(hasOffsets ? [offsetsOf(body.offsets[number])] : []),
    ];
  });
  const heads = ["partition", "ideal worker", "reported", "position", "end of source", "lag, records", "held by a transaction", "lag", "reason"];
  if (hasOffsets) heads.push("offsets");
  return [
    facts({
      state: body.effectiveState,
      stopped: body.stopped,
      "target topic": body.targetTopic,
      lane: body.lane,
      offsets: topicOffsetsOf(body),
      "figures read": body.progressAgeSeconds === null ? "not yet" : `${duration(body.progressAgeSeconds)} ago`,
      outlook: body.targetOutlook,
    }),
    table(heads, rows, "No partition is whitelisted."),
  ];
}

function auditOf(body) {
  const rows = body.verified.map((each) => [each.partition, each.from, each.to, since(each.verifiedAt, Date.now()), each.position]);
  const differences = Object.entries(body.differences).map(([kind, count]) => `${count} ${kind}`);
  return [
    facts({ state: body.state, reason: body.reason, differences: differences.join(", "), behind: body.behindOffsets }),
    table(["partition", "verified from", "to", "when", "position"], rows, "No partition was verified."),
  ];
}

function driftOf(body) {
  const own = body.topics.filter((each) => each.topic === topic && each.route === route);
  const rows = own.flatMap((each) => [
    ...(each.partitions ? [["partitions", each.partitions.source, each.partitions.target, each.partitions.reason]] : []),
    ...each.settings.map((one) => [one.name, one.source, one.target, one.willChange ? `will be ${one.wanted}` : one.reason]),
    ...(each.reason ? [["not compared", "", "", each.reason]] : []),
  ]);
  return table(["setting", "source", "target", "what happens"], rows, "Partitions and settings are as at the source.");
}

function groupsOf(body) {
  const rows = body.groups.map((each) => [each.group, each.state, each.partitions, each.reason]);
  return table(["group", "state", "partitions", "reason"], rows, "No consumer group has offsets on the route.");
}

const paths = [`/topics/${name}?${chosen}`, `/positions/${name}?${chosen}`, `/audits/${name}?${chosen}`, `/timeline/topics/${name}?${chosen}`];
title(`${route}/${topic}`, paths);
byId("acts").append(
  ...tileActions({ route, topic, worker: null }),
  actionButton(restart({ route, topic })),
  actionButton(deletion({ route, topic })),
);
byId("acts").after(acts(...positionActs(topic, chosen)), acts(...limitActs(topic, `/limits/topics/${name}?${chosen}`)));
part({ heading: "Partitions", path: paths[0], draw: partitionsOf });
part({ heading: "Lag, the last hour", path: paths[3], draw: lagChart, everyMs: 15000 });
part({
  heading: "Events",
  path: `/history?${new URLSearchParams({ topic, limit: 30, src: chosen.get("src"), dst: chosen.get("dst") })}`,
  draw: (body) => table(HEADS, body.history.map(cellsOf), "Nothing happened to it lately."),
});
part({ heading: "Audit", path: paths[2], draw: auditOf, everyMs: 10000 });
part({ heading: "Differences of partitions and settings", path: `/validation/topics?${chosen}`, draw: driftOf, everyMs: 30000, isClosed: true });
part({ heading: "Consumer groups of the route", path: `/groups?${chosen}`, draw: groupsOf, everyMs: 30000, isClosed: true });
follow();
