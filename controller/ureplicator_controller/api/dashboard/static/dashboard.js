// Draws the fleet from the JSON API, again and again. Everything shown is set as text, never as HTML.
"use strict";

const EVERY_MS = 2000;
const MOST_ROWS = 200; // a page of thousands of rows helps nobody: the filter finds the rest
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

async function ask(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.detail || answer.statusText);
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

function states(said) {
  const parts = Object.entries(said).map(([worker, state]) => `${worker} ${state}`);
  return parts.join(", ") || "nobody";
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

// Every partition that somebody holds or should hold: topic -> number -> { kind, title }.
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
  for (const found of validation.mismatches) {
    const failed = Object.values(found.actual).includes("ERROR");
    put(found.route, found.topic, found.partition, {
      kind: failed ? "error" : "moving",
      title: `should be ${states(found.ideal)}, is ${states(found.actual)}: ${found.reason}`,
    });
  }
  return topics;
}

function drawCounts(validation, instances) {
  const workers = Object.values(instances.workers);
  const counts = [
    ["topics", validation.numTopics, ""],
    ["partitions", validation.numTopicPartitions, ""],
    ["online", validation.numOnlineTopicPartitions, "agree"],
    ["offline", validation.numOfflineTopicPartitions, validation.numOfflineTopicPartitions ? "moving" : ""],
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
    byId("mismatches").replaceChildren(element("p", { text: "Nothing: every partition is where it should be.", kind: "quiet" }));
    return;
  }
  const heads = ["partition", "should be", "is", "why", "for at most"].map((text) => ({ text }));
  heads[0].kind = "name";
  const rows = found.slice(0, MOST_ROWS).map((each) => [
    `${manyRoutes ? `${each.route} ` : ""}${each.topic}/${each.partition}`,
    states(each.ideal),
    states(each.actual),
    each.reason,
    age(each.since),
  ]);
  const more = found.length > MOST_ROWS ? [element("p", { text: `and ${found.length - MOST_ROWS} more`, kind: "quiet" })] : [];
  byId("mismatches").replaceChildren(table(heads, rows), ...more);
}

// How far behind a topic is: what is known, and what is not.
function lagCells(found) {
  if (!found) return ["", ""];
  const missing = [
    found.neverCommitted ? `${found.neverCommitted} never committed` : "",
    found.unknown > found.neverCommitted ? `${found.unknown - found.neverCommitted} unknown` : "",
  ].filter(Boolean);
  const lag = element("span", { text: found.lagRecords === null ? "" : found.lagRecords.toLocaleString("en") });
  if (missing.length) lag.append(element("small", { text: ` ${missing.join(", ")}`, kind: "warn" }));
  const behind = element("span", { text: duration(found.lagSeconds) });
  if (found.retentionSeconds !== null && found.retentionSeconds < 3600) {
    const text = ` gone in ${duration(found.retentionSeconds)}`;
    behind.append(element("small", { text, kind: "lost", title: "the source may then delete what is not copied yet" }));
  }
  return [lag, behind];
}

function drawTopics(topics, offsets) {
  const wanted = byId("filter").value.toLowerCase();
  const names = [...topics.keys()].filter((name) => name.toLowerCase().includes(wanted)).sort();
  if (!names.length) {
    const text = topics.size ? "No topic matches." : "No topic is whitelisted: POST /topics adds one.";
    byId("topics").replaceChildren(element("p", { text, kind: "quiet" }));
    return;
  }
  const rows = names.slice(0, MOST_ROWS).map((name) => {
    const cells = [...topics.get(name)].sort(([one], [other]) => one - other);
    const drawn = cells.map(([number, cell]) =>
      element("span", { text: number, kind: `cell ${cell.kind}`, title: `${name}/${number}: ${cell.title}` }),
    );
    return [name, ...lagCells(offsets.get(name)), element("span", {}, ...drawn)];
  });
  const heads = [
    { text: "topic", kind: "name" },
    { text: "lag", kind: "number" },
    { text: "behind", kind: "number" },
    { text: "partitions" },
  ];
  const more = names.length > MOST_ROWS ? [element("p", { text: `and ${names.length - MOST_ROWS} more`, kind: "quiet" })] : [];
  byId("topics").replaceChildren(table(heads, rows), ...more);
}

function drawWorkers(instances) {
  const heads = [
    { text: "worker", kind: "name" },
    { text: "address" },
    { text: "slots", kind: "number" },
    { text: "should hold", kind: "number" },
    { text: "holds", kind: "number" },
    { text: "online", kind: "number" },
    { text: "in error", kind: "number" },
  ];
  const rows = Object.entries(instances.workers).map(([name, worker]) => [
    element("span", { text: worker.live ? name : `${name} (gone)`, kind: worker.live ? "" : "dead" }),
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

async function draw() {
  const pulse = byId("pulse");
  try {
    const paths = ["/ready", "/validation", "/instances", "/offset"];
    const [ready, validation, instances, progress] = await Promise.all(paths.map(ask));
    drawn = partitions(validation, instances);
    offsets = new Map(progress.topics.map((each) => [nameOf(each.route, each.topic), each]));
    byId("leader").textContent = ready.leader ? `, ${ready.leader} leads` : ", nobody leads";
    drawCounts(validation, instances);
    drawMismatches(validation);
    drawTopics(drawn, offsets);
    drawWorkers(instances);
    document.querySelector("main").classList.remove("stale");
    pulse.className = "";
    pulse.textContent = `as of ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    document.querySelector("main").classList.add("stale");
    pulse.className = "lost";
    pulse.textContent = error.message;
  }
  setTimeout(draw, EVERY_MS);
}

byId("filter").addEventListener("input", () => drawTopics(drawn, offsets));
draw();
