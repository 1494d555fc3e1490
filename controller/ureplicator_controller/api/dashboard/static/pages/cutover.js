// One cutover: its steps, what it waits for, who is in its way, what has passed its fence, and its groups.
import { actionButton, call } from "../grid/actions.js";
import { given } from "../grid/address.js";
import { byId, element, nameText, table } from "../grid/elements.js";
import { HEADS, cellsOf } from "../grid/history.js";
import { facts, follow, part, title } from "./parts.js";
import { STEP_HEADS, blockedText, stepRows } from "./steps.js";

const MOST_NAMES = 20;
const name = given().get("name") || "";
const path = `/cutovers/${encodeURIComponent(name)}`;

const status = element("p", { kind: "sentence", role: "status" });
const alarm = element("p", { kind: "lost", role: "alert" });

const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

function few(names) {
  const more = names.length - MOST_NAMES;
  return names.slice(0, MOST_NAMES).map(nameText).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

// Set only what differs, so that a screen reader says each sentence once.
function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

function sayState(details) {
  const [source, target] = details.route.split(".");
  const wish = details.wanted === "rehearse" ? "a rehearsal is under way" : "";
  const aborts = details.wanted === "abort" && details.state !== "ABORTED" ? "it is being aborted" : "";
  const parts = [`${source} -> ${target}: ${details.state}`, wish, aborts, details.reason];
  say(status, parts.filter(Boolean).join("; "));
  const alarms = details.late.filter((write) => write.alarm).map((write) => `${write.topic}/${write.partition}`);
  const places = few([...new Set(alarms)]);
  say(alarm, alarms.length ? `Written at ${source} after OPEN, and not copied: ${places}` : "");
}

function lateRow(write) {
  return [
    write.alarm ? element("strong", { text: "alarm: after OPEN, not copied", kind: "lost" }) : "before OPEN, copied",
    `${write.topic}/${write.partition}`,
    `${write.firstOffset} to ${write.nextOffset - 1}`,
    write.producers.join(", ") || "not known",
    new Date(write.at).toLocaleTimeString(),
  ];
}

function waitsOf(details) {
  if (!details.waits.length) return element("p", { text: "Nothing is in its way.", kind: "quiet" });
  return element("ul", {}, ...details.waits.map((text) => element("li", { text })));
}

function planOf({ plan }) {
  return facts({
    id: plan.id,
    topics: `${Object.keys(plan.topics).length}: ${few(Object.keys(plan.topics))}`,
    fence: plan.fenceCommand ? `${plan.fence} ${plan.fenceCommand}` : plan.fence,
    "rights added": few(plan.rights.added),
    "rights removed": few(plan.rights.removed),
    "way back": plan.wayBack ? "yes" : "no",
    groups: plan.waitForGroups ? "waited for, until they have no members at the source" : "taken as they are",
    limit: `aborted ${plan.limitSeconds} s after the fence was begun, if it is not OPEN`,
  });
}

function groupRows(details) {
  const names = new Set([...details.plan.groups, ...Object.keys(details.groups)]);
  return [...names].map((group) => [nameText(group), details.groups[group] ?? "to come"]);
}

function detailsOf(details) {
  sayState(details);
  const former = details.former && `${details.former.state} on ${details.former.route}`;
  const heading = (text) => element("h4", { text });
  const blocked = details.blockedSeconds === null ? null : blockedText(details);
  return [
    facts({
      "writes blocked": blocked,
      wanted: details.wanted,
      "asked by": details.by,
      "the run before": former,
      verified: details.verified,
    }),
    table(STEP_HEADS, stepRows(details), ""),
    heading("What it waits for"),
    waitsOf(details),
    heading(`Writes behind the fence: ${counted(details.lateOffsets, "offset")}`),
    table(["kind", "partition", "offsets", "producers", "at"], details.late.map(lateRow), "None was seen."),
    heading("Consumer groups"),
    table(["group", "outcome"], groupRows(details), "No group is in the plan."),
    heading("Plan"),
    planOf(details),
  ];
}

function eventsOf(body) {
  const own = body.history.filter((past) => /^[ :]/.test(past.reason.replace(`cutover ${name}`, "")));
  return table(HEADS, own.map(cellsOf), "Nothing happened to it lately.");
}

async function explainAbort() {
  const details = await call("GET", path);
  const [source] = details.route.split(".");
  return [`${name} is ${details.state}.`, `All that it has changed is undone: rights and offsets are as they were, and clients write at ${source}.`];
}

async function explainBack() {
  const { plan, findings, blocked } = await call("POST", `${path}/back?dry_run=true`);
  const found = findings.filter((each) => each.level !== "ok");
  const lines = found.map((each) => `${each.level}: ${each.subject}: ${each.text}${each.advice ? `: ${each.advice}` : ""}`);
  if (blocked) throw new Error(lines.filter((line) => line.startsWith("blocks")).join("; "));
  const [source, target] = plan.route.split(".");
  const moved = [counted(Object.keys(plan.topics).length, "topic"), counted(plan.groups.length, "group")].join(", ");
  return [`${name}: ${moved}: clients move from ${source} to ${target}. Writes at ${source} are blocked meanwhile.`, ...lines];
}

title(`cutover ${nameText(name)}`, [path]);
byId("acts").append(
  actionButton({ text: "Abort", method: "POST", path: `${path}/abort`, explain: explainAbort }),
  actionButton({ text: "Move back", method: "POST", path: `${path}/back?confirm=true`, explain: explainBack }),
);
byId("acts").after(status, alarm);
part({ heading: "Steps", path, draw: detailsOf });
part({ heading: "Events", path: `/history?${new URLSearchParams({ kind: "cutover", limit: 100 })}`, draw: eventsOf });
follow();
