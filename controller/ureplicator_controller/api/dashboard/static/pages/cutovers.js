// Cutovers of the fleet, each with a page of its own.
import { table } from "../grid/elements.js";
import { cutoverPage, link } from "../grid/links.js";
import { follow, part, title } from "./parts.js";
import { blockedText } from "./steps.js";

const HEADS = ["name", "route", "state", "wanted", "writes blocked", "topics", "groups", "reason"];

function cutoversOf(body) {
  const rows = body.cutovers.map((summary) => [
    link(summary.name, cutoverPage(summary.name)),
    summary.route,
    summary.state,
    summary.wanted,
    blockedText(summary),
    summary.topics,
    summary.groups,
    summary.reason,
  ]);
  return table(HEADS, rows, "No cutover is planned: `ureplicator cutover plan` makes one.");
}

title("Cutovers", ["/cutovers"]);
part({ heading: "By name", path: "/cutovers", draw: cutoversOf });
follow();
