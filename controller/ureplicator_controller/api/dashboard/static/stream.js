// Tells a page when to read the fleet again, by one stream of server-sent events (`/events`) for all its parts.
//
// Without a stream the page reads once a second: where the server has too many, and behind a proxy that holds
// events back. A hidden page has none and reads nothing: browsers open few connections to a server.

import { urlOf } from "./root.js";

const SILENT_MS = 3000; // the server sends an event each second
const TICK_MS = 1000;
const REOPEN_MS = 10000; // after a stream that was refused or silent
const REST_MS = 400; // between two reads of a fleet that changes all the time

const watchers = [];
let stream = null;
let heardAt = 0;
let reopenAt = 0;

// `read` is called when the fleet may have changed, and again when it has returned and `restMs` have passed; it
// returns whether it could read. `alive` is called with the age of the lag while nothing has changed, `failed` with
// what the server cannot read.
export function watch({ read, alive, failed, restMs = REST_MS }) {
  watchers.push(watcher({ read, alive, failed, restMs }));
  if (watchers.length > 1) {
    watchers.at(-1).changed();
    return;
  }
  document.addEventListener("visibilitychange", tick);
  setInterval(tick, TICK_MS);
  tick();
}

function watcher({ read, alive, failed, restMs }) {
  let change = null; // number of the last one that it has read; null: it is to read
  let reading = false;
  let again = false;

  async function changed() {
    again = true;
    if (reading) return;
    reading = true;
    while (again) {
      again = false;
      if (!(await read())) change = null;
      await new Promise((rested) => setTimeout(rested, restMs));
    }
    reading = false;
  }

  return {
    changed,
    state(state) {
      if (state.change !== change) {
        change = state.change;
        changed();
      } else if (!reading) {
        alive(state.lagAgeSeconds);
      }
    },
    problem(detail) {
      change = null;
      failed(new Error(detail));
    },
    forget() {
      change = null;
    },
  };
}

function open() {
  stream = new EventSource(urlOf("/events"));
  heardAt = performance.now();
  stream.addEventListener("state", (event) => heard((each) => each.state(JSON.parse(event.data))));
  stream.addEventListener("problem", (event) => heard((each) => each.problem(JSON.parse(event.data).detail)));
  stream.addEventListener("error", onError);
}

function heard(tell) {
  heardAt = performance.now();
  watchers.forEach(tell);
}

// The browser connects again by itself, unless the server has refused.
function onError() {
  watchers.forEach((each) => each.forget());
  if (stream && stream.readyState === EventSource.CLOSED) close(REOPEN_MS);
  watchers.forEach((each) => each.changed());
}

function close(forMs) {
  if (stream) stream.close();
  stream = null;
  reopenAt = performance.now() + forMs;
  watchers.forEach((each) => each.forget());
}

function tick() {
  const now = performance.now();
  if (document.hidden) {
    close(0);
    return;
  }
  if (stream && now - heardAt > SILENT_MS) close(REOPEN_MS);
  if (!stream) watchers.forEach((each) => each.changed());
  if (!stream && now >= reopenAt) open();
}
