// Reads /overview when the fleet has changed, with the ETag of the last response: unchanged costs a 304 without a body.
import { urlOf } from "../root.js";
import { watch } from "../stream.js";

// Calls back with the overview when it has changed, and with an error when it cannot be read.
// `alive` is called with the age of the lag in seconds, or null, when nothing has changed, too.
export function follow({ changed, failed, alive }) {
  let tag = null;
  async function read() {
    try {
      const headers = { Accept: "application/json" };
      if (tag) headers["If-None-Match"] = tag;
      const response = await fetch(urlOf("/overview"), { headers, cache: "no-store" });
      if (response.status === 401) window.location.assign(urlOf("/login"));
      if (response.status === 200) {
        const overview = await response.json();
        tag = response.headers.get("ETag");
        changed(overview);
      } else if (response.status !== 304) {
        const problem = await response.json();
        throw new Error(problem.detail || response.statusText);
      }
      const age = response.headers.get("Lag-Age-Seconds");
      alive(age === null ? null : Number(age));
      return true;
    } catch (error) {
      failed(error);
      return false;
    }
  }
  watch({ read, alive, failed });
}

// One partition of the columns as an object.
export function tileOf(overview, index) {
  const { tiles, topics, workers, states, texts } = overview;
  const topic = topics[tiles.topic[index]];
  const worker = tiles.worker[index];
  return {
    route: topic.route,
    topic: topic.topic,
    partition: tiles.partition[index],
    state: states[tiles.state[index]],
    worker: worker < 0 ? null : workers[worker].worker,
    reason: texts[tiles.reason[index]],
    since: tiles.since[index],
    actual: texts[tiles.actual[index]],
    lagSeconds: tiles.lagSeconds[index],
  };
}
