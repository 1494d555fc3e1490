// Parts of a page: each is read from REST by itself, again and again, and keeps what it has read last.
import { call } from "../grid/actions.js";
import { byId, element } from "../grid/elements.js";
import { urlOf } from "../root.js";
import { watch } from "../stream.js";

const parts = [];
const following = []; // those that are read when the fleet has changed

// Section with a heading. `draw` returns its elements from what `path` gives. `everyMs`: how often it is read, if
// it is not in the state of the fleet; `isClosed`: it is read only while it is open, since reading it asks the
// Kafka clusters.
export function part({ heading, path, draw, everyMs = 0, isClosed = false }) {
  const shown = element("div", { tabIndex: 0, role: "region", ariaLabel: heading });
  const lost = element("strong", { kind: "lost", role: "alert" });
  const head = element(isClosed ? "summary" : "h3", { text: heading });
  const frame = isClosed ? element("details", {}, head, lost, shown) : element("div", {}, head, lost, shown);
  byId("parts").append(element("section", {}, frame));
  const own = { readAt: 0, timer: null, read, alive, failed };
  parts.push(own);

  function alive() {
    own.readAt = performance.now();
    lost.textContent = "";
  }

  function failed(error) {
    lost.textContent = own.readAt ? `${error.message}: what is shown is the last that was read` : error.message;
  }

  async function read() {
    try {
      shown.replaceChildren(...[draw(await call("GET", path))].flat());
      alive();
      return true;
    } catch (error) {
      failed(error);
      return false;
    }
  }

  async function again() {
    clearTimeout(own.timer);
    if (isClosed && !frame.open) return;
    await read();
    own.timer = setTimeout(again, everyMs);
  }

  if (!everyMs) {
    following.push(own);
    return;
  }
  frame.addEventListener("toggle", again);
  if (!isClosed) again();
}

// Begin to read the parts that follow the fleet, when the page has all of them.
export function follow() {
  watch({
    read: async () => (await Promise.all(following.map((each) => each.read()))).every(Boolean),
    alive: () => following.forEach((each) => each.alive()),
    failed: (error) => following.forEach((each) => each.failed(error)),
  });
}

// Heading of the page, and links to the same as JSON.
export function title(text, paths) {
  byId("title").textContent = text;
  const links = paths.map((path) => element("a", { text: path, href: urlOf(path) }));
  byId("sources").replaceChildren("as JSON: ", ...links.flatMap((link) => [link, " "]));
}

// Names with their values, texts or elements; those without a value are left out.
export function facts(values) {
  const shown = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const valueOf = (value) => element("dd", {}, value instanceof Node ? value : String(value));
  return element("dl", {}, ...shown.flatMap(([name, value]) => [element("dt", { text: name }), valueOf(value)]));
}

function showAge() {
  const oldest = Math.min(...parts.map((each) => each.readAt).filter(Boolean));
  const age = Number.isFinite(oldest) ? `read ${Math.round((performance.now() - oldest) / 1000)} s ago` : "loading";
  byId("pulse").textContent = age;
}

setInterval(showAge, 1000);
byId("confirm-cancel").addEventListener("click", () => byId("confirm").close());
