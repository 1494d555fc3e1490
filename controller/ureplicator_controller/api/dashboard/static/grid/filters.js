// What of the grid is shown: it is in the page's address, so that a view can be sent to a colleague.

export const NO_FILTER = { topic: "", state: "", worker: "", differing: false };

export function fromAddress(search) {
  const given = new URLSearchParams(search);
  return {
    topic: given.get("topic") || "",
    state: given.get("state") || "",
    worker: given.get("worker") || "",
    differing: given.get("differing") === "true",
  };
}

// Indices of the tiles that a filter lets through, in order.
export function shownTiles(overview, filter) {
  const { tiles, topics, workers, states } = overview;
  const wanted = filter.topic.toLowerCase();
  const ofTopic = topics.map((each) => `${each.route}/${each.topic}`.toLowerCase().includes(wanted));
  const state = states.indexOf(filter.state);
  const worker = workers.findIndex((each) => each.worker === filter.worker);
  const shown = [];
  for (let index = 0; index < tiles.topic.length; index += 1) {
    if (!ofTopic[tiles.topic[index]]) continue;
    if (filter.state && tiles.state[index] !== state) continue;
    if (filter.worker && (worker < 0 || tiles.worker[index] !== worker)) continue;
    if (filter.differing && tiles.state[index] === 0) continue;
    shown.push(index);
  }
  return shown;
}
