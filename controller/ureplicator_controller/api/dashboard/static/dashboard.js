// Draws the lists of the fleet from the JSON API when it has changed. Everything is set as text, never as HTML.
"use strict";

const REST_MS = 2000; // a draw takes eight calls
const MAX_ROWS = 200; // a longer table is unreadable: the filter finds the others
const byId = (id) => document.getElementById(id);
const manyRoutes = JSON.parse(document.body.dataset.routes).length > 1;

function element(tag, { text = "", kind = "", title = "" } = {}, ...children) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  if (title) made.title = title;
  made.append(...children);
  return made;
}

async function read(path) {
  const response = await fetch(`.${path}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) window.location.assign("login");
  const body = await response.json();
  if (!response.ok) throw new Error(body.detail || response.statusText);
  return body;
}

function table(heads, rows) {
  const cells = (tag, values) =>
    values.map((value, at) => {
      const cell = element(tag, { kind: heads[at].kind || "" });
      cell.append(value);
      return cell;
    });
  const head = element("tr", {}, ...cells("th", heads.map((each) => each.text)));
  return element("table", {}, head, ...rows.map((row) => element("tr", {}, ...cells("td", row))));
}

function states(reported) {
  const parts = Object.entries(reported).map(([worker, state]) => `${worker} ${state}`);
  return parts.join(", ") || "no worker";
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

function age(since) {
  return since ? duration(Math.max(0, (Date.now() - since) / 1000)) : "";
}

function nameOf(route, topic) {
  return manyRoutes ? `${route} ${topic}` : topic;
}

// Every partition of every topic, whatever its state: topic -> number -> { kind, title }.
function partitions(validation, instances) {
  const topics = new Map();
  const put = (route, topic, number, cell) => {
    const name = nameOf(route, topic);
    if (!topics.has(name)) topics.set(name, new Map());
    topics.get(name).set(number, cell);
  };
  for (const [name, worker] of Object.entries(instances.workers)) {
    for (const held of worker.partitions) {
      put(held.route, held.topic, held.partition, { kind: "agree", title: `${name} ${held.state}` });
    }
  }
  const stopped = new Set();
  for (const excluded of validation.excluded) {
    const kind = excluded.state === "stopped" ? "error" : "excluded";
    if (kind === "error") stopped.add(nameOf(excluded.route, excluded.topic));
    for (const number of excluded.partitions) put(excluded.route, excluded.topic, number, { kind, title: excluded.reason });
  }
  for (const found of validation.mismatches) {
    const failed = Object.values(found.actual).includes("ERROR") || stopped.has(nameOf(found.route, found.topic));
    put(found.route, found.topic, found.partition, {
      kind: failed ? "error" : "moving",
      title: `ideal: ${states(found.ideal)}, actual: ${states(found.actual)}; ${found.reason}`,
    });
  }
  return topics;
}

// Labels of the topics that are excluded, wholly or in part: topic -> [{ text, kind, title }].
function exclusionLabels(validation, topics) {
  const words = new Map();
  for (const excluded of validation.excluded) {
    const name = nameOf(excluded.route, excluded.topic);
    const whole = excluded.partitions.length === topics.get(name).size;
    const word = {
      text: whole ? excluded.state : `${excluded.partitions.length} ${excluded.state}`,
      kind: excluded.state === "stopped" ? "lost" : "warn",
      title: excluded.reason,
    };
    words.set(name, [...(words.get(name) || []), word]);
  }
  return words;
}

// Offline partitions that are excluded: paused, blacklisted or stopped.
function excludedCounts(validation) {
  const counts = [
    [validation.numPausedTopicPartitions, "paused"],
    [validation.numReversedTopicPartitions, "reversed"],
    [validation.numBlacklistedTopicPartitions, "blacklisted"],
    [validation.numStoppedTopicPartitions, "stopped"],
  ].filter(([count]) => count);
  return { count: counts.reduce((sum, [count]) => sum + count, 0), text: counts.map((each) => each.join(" ")).join(", ") };
}

function offlineCount(validation) {
  const sums = excludedCounts(validation);
  const offline = validation.numOfflineTopicPartitions;
  const kind = validation.numStoppedTopicPartitions ? "error" : offline > sums.count ? "moving" : "";
  return [sums.text ? `offline (${sums.text})` : "offline", offline, kind];
}

function drawCounts(validation, instances) {
  const workers = Object.values(instances.workers);
  const counts = [
    ["topics", validation.numTopics, ""],
    ["partitions", validation.numTopicPartitions, ""],
    ["online", validation.numOnlineTopicPartitions, "agree"],
    offlineCount(validation),
    ["in error", validation.numErrorTopicPartitions, validation.numErrorTopicPartitions ? "error" : ""],
    ["live workers", workers.filter((worker) => worker.live).length, ""],
  ];
  byId("counts").replaceChildren(
    ...counts.map(([name, value, kind]) =>
      element("div", { kind: `count ${kind}` }, element("b", { text: value }), element("span", { text: name, kind: "quiet" })),
    ),
  );
}

function drawMismatches(validation) {
  const found = validation.mismatches;
  if (!found.length) {
    const sums = excludedCounts(validation);
    const text = `None: the external view matches the ideal state${sums.text ? ` (excluded: ${sums.text})` : ""}.`;
    byId("mismatches").replaceChildren(element("p", { text, kind: "quiet" }));
    return;
  }
  const heads = ["partition", "ideal state", "external view", "reason", "age (at most)"].map((text) => ({ text }));
  heads[0].kind = "name";
  const rows = found.slice(0, MAX_ROWS).map((each) => [
    `${manyRoutes ? `${each.route} ` : ""}${each.topic}/${each.partition}`,
    states(each.ideal),
    states(each.actual),
    each.reason,
    age(each.since),
  ]);
  const more = found.length > MAX_ROWS ? [element("p", { text: `and ${found.length - MAX_ROWS} more`, kind: "quiet" })] : [];
  byId("mismatches").replaceChildren(table(heads, rows), ...more);
}

// Lag of a topic, and the number of partitions without known lag.
function lagCells(found) {
  if (!found) return ["", ""];
  const missing = [
    found.neverCommitted ? `${found.neverCommitted} never committed` : "",
    found.unknown > found.neverCommitted ? `${found.unknown - found.neverCommitted} unknown` : "",
  ].filter(Boolean);
  const lag = element("span", { text: found.lagRecords === null ? "" : found.lagRecords.toLocaleString("en") });
  if (found.heldRecords) missing.push(`+ ${found.heldRecords.toLocaleString("en")} held by open transactions`);
  if (missing.length) lag.append(element("small", { text: ` ${missing.join(", ")}`, kind: "warn" }));
  const behind = element("span", { text: duration(found.lagSeconds) });
  if (found.retentionSeconds !== null && found.retentionSeconds < 3600) {
    const text = ` retention in ${duration(found.retentionSeconds)}`;
    behind.append(element("small", { text, kind: "lost", title: "the source may then delete records that are not copied yet" }));
  }
  return [lag, behind];
}

function drawTopics(topics, offsets, words, audited) {
  const wanted = byId("filter").value.toLowerCase();
  const names = [...topics.keys()].filter((name) => name.toLowerCase().includes(wanted)).sort();
  if (!names.length) {
    const text = topics.size ? "No topic matches." : "No topic is whitelisted: POST /topics adds one.";
    byId("topics").replaceChildren(element("p", { text, kind: "quiet" }));
    return;
  }
  const rows = names.slice(0, MAX_ROWS).map((name) => {
    const cells = [...topics.get(name)].sort(([one], [other]) => one - other);
    const drawn = cells.map(([number, cell]) =>
      element("span", { text: number, kind: `cell ${cell.kind}`, title: `${name}/${number}: ${cell.title}` }),
    );
    const special = (words.get(name) || []).map((word) => element("small", { ...word, text: ` ${word.text}` }));
    return [element("span", { text: name }, ...special), ...lagCells(offsets.get(name)), auditCell(audited.get(name)), element("span", {}, ...drawn)];
  });
  const heads = [
    { text: "topic", kind: "name" },
    { text: "lag (records)", kind: "number" },
    { text: "lag (time)", kind: "number" },
    { text: "audit", kind: "name" },
    { text: "partitions" },
  ];
  const more = names.length > MAX_ROWS ? [element("p", { text: `and ${names.length - MAX_ROWS} more`, kind: "quiet" })] : [];
  byId("topics").replaceChildren(table(heads, rows), ...more);
}

// The same labels as in `ureplicator instances`.
function specialOf(worker) {
  const words = [
    worker.live ? "" : worker.evicted ? "evicted" : "gone",
    worker.blacklisted || worker.draining ? "drained" : "",
  ].filter(Boolean);
  return words.length ? ` (${words.join(", ")})` : "";
}

function drawSwitches(balancing, freeze, configured) {
  const paused = Object.entries(configured.routes)
    .filter(([, route]) => route.paused)
    .map(([name]) => `${name} paused`);
  const words = [freeze.frozen ? "frozen" : "", balancing.auto_balancing ? "" : "auto-balancing off", ...paused];
  byId("switches").textContent = words.filter(Boolean).join(", ");
}

function drawWorkers(instances) {
  const heads = [
    { text: "worker", kind: "name" },
    { text: "address" },
    { text: "slots", kind: "number" },
    { text: "ideal", kind: "number" },
    { text: "held", kind: "number" },
    { text: "online", kind: "number" },
    { text: "in error", kind: "number" },
  ];
  const rows = Object.entries(instances.workers).map(([name, worker]) => [
    element("span", { text: name + specialOf(worker), kind: specialOf(worker) ? "dead" : "" }),
    worker.live && worker.host ? `${worker.host}:${worker.port}` : "",
    worker.slots,
    worker.idealPartitions,
    worker.heldPartitions,
    worker.onlinePartitions,
    worker.errorPartitions,
  ]);
  const none = element("p", { text: "No worker has joined yet.", kind: "quiet" });
  byId("workers").replaceChildren(rows.length ? table(heads, rows) : none);
}

let drawn = new Map();
let offsets = new Map();
let exclusions = new Map();
let audited = new Map();

async function draw() {
  try {
    const paths = [
      "/ready", "/validation", "/instances", "/offset", "/admin/autobalancing_status", "/admin/freeze", "/routes", "/audits",
    ];
    const [ready, validation, instances, progress, balancing, freeze, configured, verification] = await Promise.all(paths.map(read));
    drawn = partitions(validation, instances);
    exclusions = exclusionLabels(validation, drawn);
    offsets = new Map(progress.topics.map((each) => [nameOf(each.route, each.topic), each]));
    audited = new Map(verification.audits.map((each) => [nameOf(each.route, each.topic), each]));
    byId("leader").textContent = ready.leader ? `, leader ${ready.leader}` : ", no leader";
    drawSwitches(balancing, freeze, configured);
    byId("conditions").replaceChildren(...validation.conditions.map((text) => element("li", { text, kind: "lost" })));
    drawCounts(validation, instances);
    drawMismatches(validation);
    drawTopics(drawn, offsets, exclusions, audited);
    drawAudit();
    drawWorkers(instances);
    alive();
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

function alive() {
  document.querySelector("main").classList.remove("stale");
  byId("pulse").className = "";
  byId("pulse").textContent = `as of ${new Date().toLocaleTimeString()}`;
}

function failed(error) {
  document.querySelector("main").classList.add("stale");
  byId("pulse").className = "lost";
  byId("pulse").textContent = error.message;
}

byId("filter").addEventListener("input", () => drawTopics(drawn, offsets, exclusions, audited));
byId("audit-close").addEventListener("click", () => showAudit(null));
import("./stream.js").then(({ watch }) => watch({ read: draw, alive, failed, restMs: REST_MS }));
