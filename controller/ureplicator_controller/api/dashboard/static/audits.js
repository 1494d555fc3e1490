// Draws the state of each topic's audit, and the result of one. `dashboard.js` draws the rest.
"use strict";

const AUDIT_MARKS = {
  "never verified": { kind: "", text: "never" },
  verified: { kind: "agree", text: "verified" },
  stale: { kind: "moving", text: "stale" },
  "differences found": { kind: "error", text: "differs" },
};
let shownAudit = null; // of whichever topic was chosen: its summary in /audits

// State of a topic's audit as a button that shows its result.
function auditCell(audit) {
  if (!audit) return "";
  const mark = AUDIT_MARKS[audit.state];
  const behind = audit.behindOffsets ? `${audit.behindOffsets.toLocaleString("en")} offsets behind` : "";
  const title = [audit.reason, behind, differencesOf(audit.differences)].filter(Boolean).join("; ");
  const button = element("button", { text: mark.text, kind: `mark ${mark.kind}`, title: title || audit.state });
  button.addEventListener("click", () => showAudit(audit));
  const age = audit.secondsSinceVerified === null ? "" : ` ${duration(audit.secondsSinceVerified)} ago`;
  const now = audit.running ? ` ${progressOf(audit.running)}` : audit.requested ? ` ${requestOf(audit.requested)}` : "";
  return element("span", {}, button, element("small", { text: age + now, kind: "quiet" }));
}

function progressOf(running) {
  const share = running.offsets ? Math.round((100 * running.compared) / running.offsets) : 0;
  return `running: ${share} %`;
}

function requestOf(requested) {
  return requested.attempts ? `requested, begun ${requested.attempts} times` : "requested";
}

function differencesOf(counts) {
  return Object.entries(counts)
    .filter(([, count]) => count)
    .map(([kind, count]) => `${count} ${kind}`)
    .join(", ");
}

function showAudit(audit) {
  shownAudit = audit;
  drawAudit();
  if (audit) byId("audit").scrollIntoView({ block: "nearest" });
}

async function drawAudit() {
  byId("audit").hidden = shownAudit === null;
  if (shownAudit === null) return;
  const [src, dst] = shownAudit.route.split(".");
  const path = `/audits/${encodeURIComponent(shownAudit.topic)}?src=${src}&dst=${dst}`;
  try {
    const details = await read(path);
    byId("audit-topic").textContent = `${nameOf(details.route, details.topic)}: ${details.state}`;
    byId("audit-result").replaceChildren(...auditParts(details));
  } catch (error) {
    byId("audit-result").replaceChildren(element("p", { text: error.message, kind: "quiet" }));
  }
}

function auditParts(details) {
  const lines = [
    details.reason,
    details.running ? progressOf(details.running) : "",
    details.last ? lastAudit(details.last) : "No audit was requested yet.",
  ].filter(Boolean);
  const parts = lines.map((text) => element("p", { text, kind: "quiet" }));
  if (details.findings.length) parts.push(findingsTable(details.findings));
  if (details.verified.length) parts.push(verifiedTable(details.verified));
  return parts;
}

function lastAudit(last) {
  const found = differencesOf(last.differences) || "no difference";
  const report = last.report ? `; result in ${last.report}` : "";
  return `Last audit ${age(last.ended)} ago on ${last.auditor}, ${last.outcome}: ${last.records.toLocaleString("en")} records compared, ${found}${report}`;
}

function findingsTable(findings) {
  const heads = ["partition", "difference", "source offset", "target offset"].map((text) => ({ text }));
  const rows = findings.map((finding) => [
    finding.partition,
    finding.kind,
    finding.sourceOffset === null ? "" : finding.sourceOffset,
    finding.targetOffset === null ? "" : finding.targetOffset,
  ]);
  return table(heads, rows);
}

function verifiedTable(verified) {
  const heads = ["partition", "verified from", "to", "position", "time", "differences"].map((text) => ({ text }));
  const rows = verified.slice(0, MAX_ROWS).map((range) => [
    range.partition,
    range.from,
    range.to,
    range.position === null ? "" : range.position,
    `${age(range.verifiedAt)} ago`,
    differencesOf(range.differences),
  ]);
  return table(heads, rows);
}
