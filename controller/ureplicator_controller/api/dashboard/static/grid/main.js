// The grid: external view against the ideal state, and a sentence on each route.
import { keep } from "./address.js";
import { actionButton, rebalanceMoves, tileActions } from "./actions.js";
import { draw } from "./canvas.js";
import { byId, element } from "./elements.js";
import { fromAddress, shownTiles } from "./filters.js";
import { startHistory } from "./history.js";
import { layout, moved, tileAt } from "./layout.js";
import { link, topicPage, workerPage } from "./links.js";
import { showMoves } from "./moves.js";
import { follow, tileOf } from "./overview.js";
import { tableOf } from "./table.js";
import { startTimeline } from "./timeline.js";
import { startTopics } from "./topics.js";
import { duration, since } from "./times.js";

const canvas = byId("grid");
const page = {
  overview: null,
  filter: fromAddress(window.location.search),
  shown: [],
  drawn: null,
  selected: null, // index of a tile
  moving: "", // tile whose moves are shown
  acting: "", // tile whose buttons are shown
  lines: [], // of the routes
  aliveAt: 0, // of the last response
  lagAge: null, // in that response, in seconds
};

function redraw() {
  const { overview } = page;
  if (!overview) return;
  const width = canvas.parentElement.clientWidth;
  page.shown = shownTiles(overview, page.filter);
  page.drawn = layout({
    shown: page.shown,
    workerOf: overview.tiles.worker,
    workers: overview.workers.length,
    width,
  });
  draw(canvas, { overview, drawn: page.drawn, selected: located(page.selected), width });
  drawCounts();
  if (byId("grid-table").open) fillTable();
}

function located(index) {
  if (index === null) return null;
  for (const block of page.drawn.blocks) {
    const position = block.tiles.indexOf(index);
    if (position >= 0) return { block, position };
  }
  return null;
}

function drawCounts() {
  const { overview, shown } = page;
  const counts = overview.states.map(() => 0);
  for (const state of overview.tiles.state) counts[state] += 1;
  overview.states.forEach((state, at) => {
    byId(`count-${state}`).textContent = counts[at].toLocaleString("en");
  });
  byId("grid-shown").textContent = `${shown.length.toLocaleString("en")} of ${overview.tiles.state.length.toLocaleString("en")} partitions`;
}

function fillTable() {
  byId("grid-rows").replaceChildren(...tableOf(page.overview, page.shown, Date.now()));
}

// A button is made anew only when it does something else: one that has the focus keeps it.
function drawRoutes() {
  const routes = page.overview.summaries;
  if (page.lines.length !== routes.length) {
    page.lines = routes.map(() => ({ text: element("span"), act: element("span"), path: null }));
    byId("routes").replaceChildren(
      ...page.lines.map(({ text, act }) => element("p", { kind: "sentence" }, text, " ", act)),
    );
  }
  routes.forEach((route, at) => drawRoute(page.lines[at], route));
}

function drawRoute(line, route) {
  line.text.textContent = route.sentence;
  const step = route.nextSteps.find((each) => each.method);
  const path = step ? step.path : "";
  if (line.path === path) return;
  line.path = path;
  line.act.replaceChildren();
  if (step) {
    line.act.append(
      actionButton({ text: "Do it", method: step.method, path, explain: async () => [step.text] }),
    );
  }
}

function select(index) {
  page.selected = index;
  drawSelected();
  redraw();
}

// Its moves are read when it is chosen, and when its state has changed since.
function drawMoves(tile) {
  const shown = `${tile.route}/${tile.topic}/${tile.partition} ${tile.worker} ${tile.actual}`;
  if (page.moving === shown) return;
  page.moving = shown;
  showMoves(tile);
}

function drawSelected() {
  if (page.selected === null) return;
  const tile = tileOf(page.overview, page.selected);
  byId("tile-text").replaceChildren(...describe(tile), pagesOf(tile));
  drawMoves(tile);
  const acting = `${tile.route}/${tile.topic} ${tile.worker}`;
  if (page.acting === acting) return;
  page.acting = acting;
  byId("tile-acts").replaceChildren(...tileActions(tile));
}

function describe(tile) {
  const lines = [
    `${tile.route}/${tile.topic}/${tile.partition}: ${tile.state}`,
    `ideal: ${tile.worker || "no worker"}; reported: ${tile.actual || "no worker"}`,
    tile.reason ? `${tile.reason} (ideal state of ${since(tile.since, Date.now()) || "no time"})` : "",
    `lag ${duration(tile.lagSeconds)}`,
  ];
  return lines.filter(Boolean).map((text) => element("p", { text }));
}

function pagesOf(tile) {
  const links = [link(`topic ${tile.topic}`, topicPage(tile.route, tile.topic))];
  if (tile.worker) links.push(link(`worker ${tile.worker}`, workerPage(tile.worker)));
  return element("p", {}, ...links.flatMap((each) => [each, " "]));
}

function pointed(event) {
  const box = canvas.getBoundingClientRect();
  const found = page.drawn && tileAt(page.drawn, event.clientX - box.left, event.clientY - box.top);
  return found ? found.block.tiles[found.position] : null;
}

function hover(event) {
  const index = pointed(event);
  canvas.title = index === null ? "" : describe(tileOf(page.overview, index)).map((each) => each.textContent).join("\n");
}

function onKey(event) {
  if (!page.drawn || !page.drawn.blocks.length || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  const from = located(page.selected);
  const first = { block: page.drawn.blocks[0], position: 0 };
  const to = from ? moved(page.drawn, from, event.key) : first;
  select(to.block.tiles[to.position]);
}

function setFilter(change) {
  page.filter = { ...page.filter, ...change };
  keep(page.filter);
  showFilter();
  redraw();
}

function showFilter() {
  byId("grid-topic").value = page.filter.topic;
  byId("grid-differing").checked = page.filter.differing;
  byId("grid-state").value = page.filter.state;
  showWorkers();
}

// The choice of workers follows the fleet; the one in the address stays, whether it is known or not.
function showWorkers() {
  const choice = byId("grid-worker");
  const known = page.overview ? page.overview.workers.map((each) => each.worker) : [];
  const names = [...new Set([...known, page.filter.worker])].filter(Boolean).sort();
  const before = [...choice.options].slice(1).map((each) => each.value);
  if (names.join("\n") !== before.join("\n")) {
    const options = names.map((name) => element("option", { text: name, value: name }));
    choice.replaceChildren(element("option", { text: "all", value: "" }), ...options);
  }
  choice.value = page.filter.worker;
}

// No figure without its age: of what was read last, and of the lag in it.
function showAge() {
  if (!page.overview) return;
  const now = performance.now();
  const lag = page.lagAge === null ? "not collected yet" : `${duration(page.lagAge + (now - page.aliveAt) / 1000)} old`;
  byId("grid-age").textContent = `read ${duration((now - page.aliveAt) / 1000)} ago, lag ${lag}`;
}

function changed(overview) {
  const before = page.overview;
  const chosen = before && page.selected !== null ? tileOf(before, page.selected) : null;
  page.overview = overview;
  page.selected = chosen ? indexOf(overview, chosen) : null;
  drawRoutes();
  showWorkers();
  redraw();
  drawSelected();
}

function indexOf(overview, { route, topic, partition }) {
  const { tiles, topics } = overview;
  const key = topics.findIndex((each) => each.route === route && each.topic === topic);
  const index = tiles.topic.findIndex((each, at) => each === key && tiles.partition[at] === partition);
  return index < 0 ? null : index;
}

function alive(lagAge) {
  page.lagAge = lagAge;
  page.aliveAt = performance.now();
  byId("grid-lost").textContent = "";
  byId("fleet").classList.remove("stale");
}

function failed(error) {
  byId("grid-lost").textContent = `${error.message}: what is shown is the last that was read`;
  byId("fleet").classList.add("stale");
}

canvas.addEventListener("mousemove", hover);
canvas.addEventListener("click", (event) => {
  const index = pointed(event);
  if (index !== null) select(index);
});
canvas.addEventListener("keydown", onKey);
byId("grid-topic").addEventListener("input", (event) => setFilter({ topic: event.target.value }));
byId("grid-state").addEventListener("change", (event) => setFilter({ state: event.target.value }));
byId("grid-worker").addEventListener("change", (event) => setFilter({ worker: event.target.value }));
byId("grid-differing").addEventListener("change", (event) => setFilter({ differing: event.target.checked }));
byId("grid-table").addEventListener("toggle", redraw);
byId("confirm-cancel").addEventListener("click", () => byId("confirm").close());
byId("fleet-acts").append(
  actionButton({ text: "Rebalance", method: "POST", path: "/rebalance", explain: rebalanceMoves }),
  actionButton({
    text: "Freeze",
    method: "POST",
    path: "/admin/freeze",
    explain: async () => ["No partition changes its owner unless operators request that very thing."],
  }),
  actionButton({
    text: "Unfreeze",
    method: "POST",
    path: "/admin/unfreeze",
    explain: async () => ["Partitions move automatically again; a mass loss counts as confirmed."],
  }),
);
new ResizeObserver(redraw).observe(canvas.parentElement);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
setInterval(showAge, 500);
showFilter();
startHistory();
startTimeline();
startTopics();
follow({ changed, failed, alive });
