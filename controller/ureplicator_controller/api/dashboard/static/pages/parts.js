// Parts of a page: each is read from REST by itself, again and again, and keeps what it has read last.
import { call } from "../grid/actions.js";
import { byId, element } from "../grid/elements.js";

const parts = [];

// Section with a heading. `draw` returns its elements from what `path` gives; `isClosed`: it is read only
// while it is open, since reading it asks the Kafka clusters.
export function part({ heading, path, draw, everyMs, isClosed = false }) {
  const shown = element("div", { tabIndex: 0, role: "region", ariaLabel: heading });
  const lost = element("strong", { kind: "lost", role: "alert" });
  const head = element(isClosed ? "summary" : "h3", { text: heading });
  const frame = isClosed ? element("details", {}, head, lost, shown) : element("div", {}, head, lost, shown);
  byId("parts").append(element("section", {}, frame));
  const own = { readAt: 0, timer: null };
  parts.push(own);
  const again = async () => {
    clearTimeout(own.timer);
    if (isClosed && !frame.open) return;
    try {
      shown.replaceChildren(...[draw(await call("GET", path))].flat());
      own.readAt = performance.now();
      lost.textContent = "";
    } catch (error) {
      lost.textContent = own.readAt ? `${error.message}: what is shown is the last that was read` : error.message;
    }
    own.timer = setTimeout(again, everyMs);
  };
  frame.addEventListener("toggle", again);
  if (!isClosed) again();
}

// Heading of the page, and links to the same as JSON.
export function title(text, paths) {
  byId("title").textContent = text;
  const links = paths.map((path) => element("a", { text: path, href: path }));
  byId("sources").replaceChildren("as JSON: ", ...links.flatMap((link) => [link, " "]));
}

// Names with their values; those without a value are left out.
export function facts(values) {
  const shown = Object.entries(values).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return element("dl", {}, ...shown.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: String(value) })]));
}

function showAge() {
  const oldest = Math.min(...parts.map((each) => each.readAt).filter(Boolean));
  const age = Number.isFinite(oldest) ? `read ${Math.round((performance.now() - oldest) / 1000)} s ago` : "loading";
  byId("pulse").textContent = age;
}

setInterval(showAge, 1000);
byId("confirm-cancel").addEventListener("click", () => byId("confirm").close());
