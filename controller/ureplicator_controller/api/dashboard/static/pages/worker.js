// One worker: what it offers, its load, and the partitions that it holds.
import { workerActions } from "../grid/actions.js";
import { given } from "../grid/address.js";
import { byId, table } from "../grid/elements.js";
import { HEADS, cellsOf } from "../grid/history.js";
import { since } from "../grid/times.js";
import { link, topicPage } from "../grid/links.js";
import { acts, limitActs } from "./acts.js";
import { facts, follow, part, title } from "./parts.js";

const worker = given().get("worker") || "";
const path = `/instances/${encodeURIComponent(worker)}`;

const megabytes = (bytes) => `${(bytes / 1e6).toFixed(2)} MB/s`;

function conditionOf(each) {
  if (each.evicted) return "evicted: counted as dead until it confirms its assignment";
  if (!each.live) return `gone, last seen ${since(each.lastSeen, Date.now()) || "never"}`;
  if (each.noCapacity) return each.noCapacity;
  if (each.leaving) return "leaves";
  return each.draining || each.blacklisted ? "drained" : "live";
}

function workerOf(body) {
  const each = body.workers[worker];
  const address = each.host ? `${each.host}:${each.port}` : "";
  const rows = each.partitions.map((held) => [
    link(`${held.route}/${held.topic}`, topicPage(held.route, held.topic)),
    held.partition,
    held.state,
    megabytes(held.bytesPerSecond),
    held.reason,
  ]);
  return [
    facts({
      condition: conditionOf(each),
      slots: each.slots,
      tags: each.tags.join(", "),
      zone: each.zone,
      version: each.version,
      "own pages": address && `${address}/status; the address of its Spark page is in sparkUi there`,
      share: `${each.idealPartitions} partitions; it holds ${each.heldPartitions}, ${each.onlinePartitions} ONLINE, ${each.errorPartitions} in ERROR`,
      load: megabytes(each.bytesPerSecond),
    }),
    table(["topic", "partition", "state", "rate", "reason"], rows, "It holds no partition."),
  ];
}

title(`worker ${worker}`, [path]);
byId("acts").append(...workerActions(worker));
byId("acts").after(acts(...limitActs(worker, `/limits/workers/${encodeURIComponent(worker)}`)));
part({ heading: "Condition and partitions", path, draw: workerOf });
part({
  heading: "Events",
  path: `/history?${new URLSearchParams({ worker, limit: 30 })}`,
  draw: (body) => table(HEADS, body.history.map(cellsOf), "Nothing happened to it lately."),
});
follow();
