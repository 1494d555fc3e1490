// The grid as a table, for people who do not see it and for copying.
import { element, table } from "./elements.js";
import { tileOf } from "./overview.js";
import { duration, since } from "./times.js";

export const MAX_ROWS = 200;
const HEADS = ["topic", "partition", "state", "ideal worker", "reported", "reason", "since", "lag"];

// Table of the first tiles shown, with the number of the others.
export function tableOf(overview, shown, nowMs) {
  const rows = shown.slice(0, MAX_ROWS).map((index) => rowOf(tileOf(overview, index), nowMs));
  const first = table(HEADS, rows, "No partition is shown.");
  const more = shown.length - MAX_ROWS;
  if (more <= 0) return [first];
  return [first, element("p", { text: `and ${more.toLocaleString("en")} more: filter them`, kind: "quiet" })];
}

function rowOf(tile, nowMs) {
  return [
    `${tile.route}/${tile.topic}`,
    String(tile.partition),
    tile.state,
    tile.worker || "none",
    tile.actual || "no worker",
    tile.reason,
    since(tile.since, nowMs),
    duration(tile.lagSeconds),
  ];
}
