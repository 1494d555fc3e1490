// Whitelisting, expanding and deleting a topic that is named in a form; pausing and resuming its route.
import { ask, deletion } from "./actions.js";
import { byId } from "./elements.js";

function named() {
  const topic = byId("topic-name").value.trim();
  const [src, dst] = byId("topic-route").value.split(".");
  const partitions = byId("topic-partitions").value;
  return {
    topic,
    route: `${src}.${dst}`,
    path: `/topics/${encodeURIComponent(topic)}?${new URLSearchParams({ src, dst })}`,
    body: partitions ? { numPartitions: Number(partitions) } : null,
  };
}

function add() {
  const { topic, route, path, body } = named();
  const count = body ? `${body.numPartitions} partitions` : "all partitions";
  ask({
    text: `Add ${topic}`,
    method: "POST",
    path,
    body: body || {},
    explain: async () => [`Copy ${count} of ${topic} on ${route}. The target topic is created if it does not exist.`],
  });
}

function expand() {
  const { topic, route, path, body } = named();
  ask({
    text: `Expand ${topic}`,
    method: "PUT",
    path,
    body: body || {},
    explain: async () => {
      if (!body) throw new Error("give the number of partitions");
      return [`Copy ${body.numPartitions} partitions of ${topic} on ${route}.`];
    },
  });
}

function pause() {
  const { route } = named();
  ask({
    text: `Pause ${route}`,
    method: "POST",
    path: `/routes/${encodeURIComponent(route)}/pause`,
    explain: async () => [`No topic of ${route} is copied, also none that is added later. Positions are kept.`],
  });
}

function resume() {
  const { route } = named();
  ask({
    text: `Resume ${route}`,
    method: "POST",
    path: `/routes/${encodeURIComponent(route)}/resume`,
    explain: async () => [`Copying of ${route} goes on at its positions. Topics that are paused themselves stay paused.`],
  });
}

export function startTopics() {
  byId("route-pause").addEventListener("click", pause);
  byId("route-resume").addEventListener("click", resume);
  const acts = { "topic-add": add, "topic-expand": expand, "topic-delete": () => ask(deletion(named())) };
  for (const [id, act] of Object.entries(acts)) {
    byId(id).addEventListener("click", () => {
      if (byId("topic-name").reportValidity()) act();
    });
  }
}
