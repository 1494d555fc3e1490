// What happened in the fleet, newest first, with filters. It is read only while it is open.
import { urlOf } from "../root.js";
import { byId, table } from "./elements.js";
import { since } from "./times.js";

const INTERVAL_MS = 3000;
const LIMIT = 100;
export const HEADS = ["when", "kind", "of", "what", "reason", "by"];
let timer = null;

function path() {
  const given = new URLSearchParams({ limit: LIMIT });
  for (const name of ["kind", "topic", "worker"]) {
    const value = byId(`history-${name}`).value.trim();
    if (value) given.set(name, value);
  }
  return `/history?${given}`;
}

async function show() {
  clearTimeout(timer);
  if (!byId("history").open) return;
  const asked = path();
  try {
    const response = await fetch(urlOf(asked), { headers: { Accept: "application/json" } });
    const body = await response.json();
    if (!response.ok) throw new Error(body.detail || response.statusText);
    if (asked === path()) draw(body.history);
    byId("history-lost").textContent = "";
  } catch (error) {
    byId("history-lost").textContent = `${error.message}: what is shown is the last that was read`;
  }
  byId("history-json").href = urlOf(asked);
  timer = setTimeout(show, INTERVAL_MS);
}

function draw(events) {
  byId("history-rows").replaceChildren(table(HEADS, events.map(cellsOf), "No such event in the history."));
}

// Texts of one event's row: of a partition, or of a worker or the whole fleet. Reasons of cutovers name them.
export function cellsOf(past) {
  const subject = past.worker || (past.kind === "cutover" ? "" : "fleet");
  const partition = past.topic === undefined ? subject : `${past.route}/${past.topic}/${past.partition}`;
  const offsets = past.nextOffset ? `offsets ${past.firstOffset} to ${past.nextOffset - 1}` : "";
  const moved = past.from === undefined ? offsets : `${past.from || "no worker"} -> ${past.to || "no worker"}`;
  return [since(Date.parse(past.time), Date.now()), past.kind, partition, moved, past.reason, past.by];
}

export function startHistory() {
  byId("history").addEventListener("toggle", show);
  for (const name of ["kind", "topic", "worker"]) byId(`history-${name}`).addEventListener("change", show);
}
