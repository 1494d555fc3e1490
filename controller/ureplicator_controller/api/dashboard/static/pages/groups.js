// Consumer groups of all routes: whether their offsets follow, and the offsets of one at both ends.
import { call } from "../grid/actions.js";
import { given, keep } from "../grid/address.js";
import { byId, element, nameText, table } from "../grid/elements.js";
import { part, title } from "./parts.js";

const routes = JSON.parse(document.body.dataset.routes);

async function choose(route, group) {
  keep({ route, group }, true);
  const [src, dst] = route.split(".");
  const path = `/group?${new URLSearchParams({ name: group, src, dst })}`;
  const chosen = byId("chosen");
  try {
    const body = await call("GET", path);
    const rows = body.partitions.map((each) => [each.topic, each.partition, each.state, each.sourceOffset, each.targetOffset, each.reason]);
    const heads = ["topic", "partition", "state", "offset at the source", "at the target", "reason"];
    chosen.replaceChildren(element("h3", { text: `${route}: ${nameText(group)}` }), table(heads, rows, "It has no offsets on the route."));
  } catch (error) {
    chosen.replaceChildren(element("p", { text: error.message, kind: "lost" }));
  }
}

function drawGroups(body) {
  const rows = body.groups.map((each) => {
    const button = element("button", { text: nameText(each.group), type: "button", kind: "mark" });
    button.addEventListener("click", () => choose(each.route, each.group));
    return [button, each.route, each.state, each.partitions, each.reason];
  });
  return table(["group", "route", "state", "partitions", "reason"], rows, "No consumer group has offsets on a route.");
}

title("Consumer groups", routes.map(({ src, dst }) => `/groups?${new URLSearchParams({ src, dst })}`));
for (const { src, dst } of routes) {
  part({ heading: `${src} -> ${dst}`, path: `/groups?${new URLSearchParams({ src, dst })}`, draw: drawGroups, everyMs: 10000 });
}
byId("parts").append(element("section", { id: "chosen", ariaLabel: "Offsets of a group", tabIndex: 0 }));
const asked = given();
if (asked.has("group")) choose(asked.get("route") || "", asked.get("group"));
