// The last moves of the partition that is chosen, from the history.
import { urlOf } from "../root.js";
import { byId, element } from "./elements.js";
import { since } from "./times.js";

const LIMIT = 10;
let asked = ""; // address of the newest question: an older answer is not shown

export async function showMoves({ route, topic, partition }) {
  const [src, dst] = route.split(".");
  const path = `/history?${new URLSearchParams({ src, dst, topic, partition, limit: LIMIT })}`;
  asked = path;
  byId("tile-moves").replaceChildren(element("li", { text: "reading its moves" }));
  const lines = await linesOf(path);
  if (asked === path) byId("tile-moves").replaceChildren(...lines.map((text) => element("li", { text })));
}

async function linesOf(path) {
  try {
    const response = await fetch(urlOf(path), { headers: { Accept: "application/json" } });
    const body = await response.json();
    if (!response.ok) return [`its moves cannot be read: ${body.detail || response.statusText}`];
    const lines = body.history.map(lineOf);
    return lines.length ? lines : ["no move in the history"];
  } catch (error) {
    return [`its moves cannot be read: ${error.message}`];
  }
}

// One event: a move has workers from and to, a gap has not.
export function lineOf(past) {
  const age = since(Date.parse(past.time), Date.now());
  const what = past.kind === "move" ? `${past.from || "no worker"} -> ${past.to || "no worker"}` : past.kind;
  const by = past.by ? ` by ${past.by}` : "";
  return `${age}${by}: ${what}: ${past.reason}`;
}
