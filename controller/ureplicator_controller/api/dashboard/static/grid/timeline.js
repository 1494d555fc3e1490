// Lag and throughput of the routes over time, with the events between: moves, faults and operators' acts.
import { call } from "./actions.js";
import { given, keep } from "./address.js";
import { cellsOf } from "./history.js";
import { urlOf } from "../root.js";
import { byId, element, table } from "./elements.js";

const INTERVAL_MS = 15000;
const MOST_ROUTES = 5; // those that lag most; never a line for each partition
const MOST_EVENTS = 50; // in the list
const COLOURS = ["--agree", "--moving", "--stuck", "--error", "--excluded"];
const CHARTS = [
  { id: "timeline-lag", figure: "lagSeconds", label: "lag, s", scale: 1 },
  { id: "timeline-rate", figure: "bytesPerSecond", label: "MB/s", scale: 1e-6 },
];
const USAGE_INTERVAL_MS = 60000;
const USAGE_HEADS = ["route", "copied in the last day", "records", "processor time", "core-hours/TB", "since"];
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
const MARKS = { fault: "--error", act: "--moving", move: "--line" };
const FAILED_CUTOVER = /: written at |: ABORTED (?!.*: requested by an operator$)/;
const charts = new Map();
let timer = null;
let last = null;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function path() {
  const asked = new URLSearchParams({ minutes: byId("timeline-minutes").value });
  const at = byId("timeline-at").value;
  if (at) asked.set("at", new Date(at).toISOString());
  return `/timeline?${asked}`;
}

async function showUsage() {
  try {
    const { usage } = await call("GET", "/usage");
    byId("usage").replaceChildren(table(USAGE_HEADS, usage.map(usageCells), "Nothing was copied in the last day, as far as this controller has seen."));
  } catch (error) {
    byId("usage").replaceChildren(element("strong", { text: error.message, kind: "lost" }));
  }
  setTimeout(showUsage, USAGE_INTERVAL_MS);
}

// Cells of the table of what was copied, for one route.
export function usageCells({ route, bytes, records, cpuSeconds, coreHoursPerTb, since }) {
  return [
    route,
    amount(bytes),
    records.toLocaleString(),
    `${(cpuSeconds / 3600).toFixed(2)} core-hours`,
    coreHoursPerTb === null ? "" : coreHoursPerTb.toFixed(2),
    new Date(since).toLocaleString(),
  ];
}

// Bytes in the largest decimal unit that leaves at least one.
export function amount(bytes) {
  const at = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, bytes)) / 3)));
  return `${(bytes / 1000 ** at).toFixed(at ? 1 : 0)} ${UNITS[at]}`;
}

async function show() {
  clearTimeout(timer);
  const asked = path();
  byId("timeline-json").href = urlOf(asked);
  try {
    const timeline = await call("GET", asked);
    if (asked === path()) draw(timeline);
    byId("timeline-lost").textContent = "";
  } catch (error) {
    byId("timeline-lost").textContent = `${error.message}: what is shown is the last that was read`;
  }
  timer = setTimeout(show, INTERVAL_MS);
}

// Names of the routes to draw, the one that lags most first.
export function shownRoutes(routes) {
  const worst = (name) => Math.max(0, ...routes[name].lagSeconds.filter((each) => each !== null));
  return Object.keys(routes)
    .sort((one, other) => worst(other) - worst(one) || one.localeCompare(other))
    .slice(0, MOST_ROUTES);
}

// Columns for the chart: seconds, then the values of each route, null where it has none.
export function columns(routes, names, figure, scale) {
  const times = [...new Set(names.flatMap((name) => routes[name].at))].sort((one, other) => one - other);
  const places = new Map(times.map((at, index) => [at, index]));
  const values = names.map((name) => {
    const column = new Array(times.length).fill(null);
    routes[name].at.forEach((at, index) => {
      const value = routes[name][figure][index];
      column[places.get(at)] = value === null ? null : value * scale;
    });
    return column;
  });
  return [times.map((at) => at / 1000), ...values];
}

// What an event is on the axis: a move of a partition, whatever caused it; else an operator's act, or a fault.
export function markOf(past) {
  if (past.kind === "move") return "move";
  if (past.kind === "cutover") return FAILED_CUTOVER.test(past.reason) ? "fault" : "act";
  if (past.request) return "act";
  return past.kind === "gap" || /^(gone|evicted|has no capacity|brake held)/.test(past.reason) ? "fault" : "move";
}

function draw(timeline) {
  last = timeline;
  const names = shownRoutes(timeline.routes);
  const left = Object.keys(timeline.routes).length - names.length;
  const since = timeline.keptSince ? `kept since ${new Date(timeline.keptSince).toLocaleString()}` : "nothing is kept yet";
  byId("timeline-kept").textContent = left > 0 ? `${since}; ${left} routes with less lag are left out` : since;
  for (const chart of CHARTS) drawChart(chart, timeline, names);
  drawEvents(timeline.events);
  if (byId("timeline-table").open) fillTable(timeline);
}

function drawChart({ id, figure, label, scale }, timeline, names) {
  charts.get(id)?.destroy();
  const frame = byId(id);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const series = names.map((name, at) => ({ label: name, stroke: colour(COLOURS[at]), width: 1.5, spanGaps: false }));
  const options = {
    width: frame.clientWidth,
    height: 170,
    padding: [null, 32, null, null],
    cursor: { sync: { key: "timeline" } },
    scales: { x: { min: timeline.begin / 1000, max: timeline.end / 1000 }, y: { range: (_, low, high) => [0, Math.max(1, high || 1) * 1.1] } },
    axes: [axis, { ...axis, label, size: 60 }],
    series: [{}, ...series],
    hooks: { drawClear: [(chart) => drawMarks(chart, timeline.events)] },
  };
  charts.set(id, new window.uPlot(options, columns(timeline.routes, names, figure, scale), frame));
}

function drawMarks(chart, events) {
  const { ctx, bbox } = chart;
  ctx.save();
  for (const past of events) {
    const x = Math.round(chart.valToPos(Date.parse(past.time) / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.fillStyle = colour(MARKS[markOf(past)]);
    ctx.fillRect(x, bbox.top, 1, bbox.height);
  }
  ctx.restore();
}

function drawEvents(events) {
  const shown = events.filter((past) => markOf(past) !== "move").slice(-MOST_EVENTS).reverse();
  const rows = shown.map((past) => {
    const [, kind, partition, moved, reason, by] = cellsOf(past);
    const text = [kind, partition, moved, reason, by && `by ${by}`].filter(Boolean).join(": ");
    const at = element("button", { text: new Date(past.time).toLocaleTimeString(), kind: "mark", type: "button" });
    at.addEventListener("click", () => look(Date.parse(past.time)));
    return element("li", {}, at, ` ${text}`);
  });
  const none = element("li", { text: "No fault and no operator's act in this time.", kind: "quiet" });
  byId("timeline-events").replaceChildren(...(rows.length ? rows : [none]));
}

// Show the time around an event: as much after it as before, or up to now.
function look(atMs) {
  const halfMs = Number(byId("timeline-minutes").value) * 30000;
  if (atMs + halfMs < Date.now()) setTime(new Date(atMs + halfMs));
  byId("timeline-at").focus();
}

function setTime(time) {
  const local = time && new Date(time.getTime() - time.getTimezoneOffset() * 60000);
  byId("timeline-at").value = local ? local.toISOString().slice(0, 19) : "";
  changed();
}

function fillTable(timeline) {
  const heads = ["route", "from", "lag, s", "lag, records", "MB/s", "records/s", "mismatches", "in error"];
  const rows = Object.entries(timeline.routes).flatMap(([name, each]) =>
    each.at.map((at, index) => {
      return [
        name,
        new Date(at).toLocaleTimeString(),
        each.lagSeconds[index],
        each.lagRecords[index],
        (each.bytesPerSecond[index] / 1e6).toFixed(2),
        Math.round(each.recordsPerSecond[index]),
        each.mismatches[index],
        each.errors[index],
      ];
    }),
  );
  byId("timeline-rows").replaceChildren(table(heads, rows, "Nothing is kept of this time."));
}

function changed() {
  const at = byId("timeline-at").value;
  keep({ at: at && new Date(at).toISOString(), minutes: byId("timeline-minutes").value === "60" ? "" : byId("timeline-minutes").value });
  show();
}

export function startTimeline() {
  const asked = given();
  const minutes = asked.get("minutes");
  if ([...byId("timeline-minutes").options].some((each) => each.value === minutes)) byId("timeline-minutes").value = minutes;
  byId("timeline-minutes").addEventListener("change", changed);
  byId("timeline-at").addEventListener("change", changed);
  byId("timeline-now").addEventListener("click", () => setTime(null));
  byId("timeline-table").addEventListener("toggle", () => last && draw(last));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => last && draw(last));
  new ResizeObserver(() => {
    for (const { id } of CHARTS) charts.get(id)?.setSize({ width: byId(id).clientWidth, height: 170 });
  }).observe(byId("timeline-lag"));
  showUsage();
  const at = Date.parse(asked.get("at") || "");
  if (Number.isNaN(at)) show();
  else setTime(new Date(at));
}
