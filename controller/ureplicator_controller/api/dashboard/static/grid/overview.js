// Reads /overview once a second, with the ETag of the last response: unchanged costs a 304 without a body.

const INTERVAL_MS = 1000;

// Calls back with (overview, null) when it has changed, and with (null, error) when it cannot be read.
// `alive` is called with the age of the lag in seconds, or null, after each response, changed or not.
export function follow({ changed, failed, alive }) {
  let tag = null;
  async function once() {
    try {
      const headers = { Accept: "application/json" };
      if (tag) headers["If-None-Match"] = tag;
      const response = await fetch("/overview", { headers, cache: "no-store" });
      if (response.status === 401) window.location.assign("/login");
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
    } catch (error) {
      failed(error);
    }
    setTimeout(once, INTERVAL_MS);
  }
  once();
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
