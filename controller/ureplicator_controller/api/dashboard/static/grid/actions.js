// Operators' acts, each confirmed in a dialog that says what will happen.
import { urlOf } from "../root.js";
import { byId, element } from "./elements.js";

export async function call(method, path, body = null) {
  const headers = { Accept: "application/json" };
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(urlOf(path), { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error([answer.detail || response.statusText, answer.hint].filter(Boolean).join(": "));
  return answer;
}

// Button that asks before it calls REST. `explain` returns the lines that say what will happen.
export function actionButton({ text, method, path, body, explain }) {
  const button = element("button", { text, type: "button", kind: "mark" });
  button.addEventListener("click", () => ask({ text, method, path, body, explain }));
  return button;
}

let asked = 0; // number of the question that the dialog shows

export async function ask({ text, method, path, body = null, explain }) {
  asked += 1;
  const own = asked;
  const dialog = byId("confirm");
  byId("confirm-title").textContent = text;
  byId("confirm-call").textContent = called(method, path, body);
  byId("confirm-result").textContent = "";
  byId("confirm-apply").disabled = true;
  byId("confirm-lines").replaceChildren();
  if (!dialog.open) dialog.showModal();
  try {
    const { lines, chosen = path } = asLines(await explain());
    if (own !== asked) return;
    byId("confirm-call").textContent = called(method, chosen, body);
    byId("confirm-apply").onclick = () => apply(method, chosen, body);
    byId("confirm-lines").replaceChildren(...lines.map((line) => element("li", { text: line })));
    byId("confirm-apply").disabled = false;
  } catch (error) {
    if (own === asked) byId("confirm-result").textContent = error.message;
  }
}

const called = (method, path, body) => `${method} ${path}${body ? ` ${JSON.stringify(body)}` : ""}`;

// What `explain` returned: lines, or lines with the path to call instead.
const asLines = (explained) => (Array.isArray(explained) ? { lines: explained } : explained);

async function apply(method, path, body) {
  byId("confirm-apply").disabled = true;
  try {
    await call(method, path, body);
    byId("confirm").close();
  } catch (error) {
    byId("confirm-result").textContent = error.message;
  }
}

// Moves of a rebalance's dry run; the call then applies exactly these.
export async function rebalanceMoves() {
  const plan = await call("POST", "/rebalance?dry_run=true");
  const moves = plan.moves.map(
    (move) => `${move.route}/${move.topic}/${move.partition}: ${move.from || "no worker"} -> ${move.to || "no worker"}: ${move.reason}`,
  );
  return { lines: moves.length ? moves : ["No partition would move."], chosen: `/rebalance?plan=${plan.planId}` };
}

const pathOf = (tile, act) => {
  const [src, dst] = tile.route.split(".");
  const chosen = new URLSearchParams({ src, dst });
  return `/topics/${encodeURIComponent(tile.topic)}/${act}?${chosen}`;
};

// Deletion of a topic, for `ask` and `actionButton`.
export function deletion({ route, topic }) {
  const [src, dst] = route.split(".");
  return {
    text: `Delete ${topic}`,
    method: "DELETE",
    path: `/topics/${encodeURIComponent(topic)}?${new URLSearchParams({ src, dst })}`,
    explain: async () => [`${topic} is no longer copied on ${route}. The target topic and the positions are kept.`],
  };
}

// Restart of a topic that the leader stopped, for `ask` and `actionButton`.
export function restart({ route, topic }) {
  const [src, dst] = route.split(".");
  const chosen = new URLSearchParams({ src, dst });
  const path = `/topics/${encodeURIComponent(topic)}`;
  const explain = async () => {
    const { stopped } = await call("GET", `${path}?${chosen}`);
    if (!stopped) throw new Error(`${topic} is not stopped: it is resumed where it was paused.`);
    return [
      `It is stopped: ${stopped}.`,
      `The topics that have this name now are copied, from the first record of the source. Positions of the former ones do not count.`,
    ];
  };
  return { text: `Restart ${topic}`, method: "POST", path: `${path}/resume?${chosen}`, body: { restart: true }, explain };
}

// Buttons for what the tile shows.
export function tileActions(tile) {
  const name = `${tile.route}/${tile.topic}`;
  const buttons = [
    actionButton({
      text: `Pause ${tile.topic}`,
      method: "POST",
      path: pathOf(tile, "pause"),
      explain: async () => [`All partitions of ${name} stop being copied. Positions are kept.`],
    }),
    actionButton({
      text: `Resume ${tile.topic}`,
      method: "POST",
      path: pathOf(tile, "resume"),
      explain: async () => [`Copying of ${name} goes on at its positions.`],
    }),
  ];
  if (tile.worker) {
    buttons.push(...workerActions(tile.worker));
  }
  return buttons;
}

export function workerActions(worker) {
  const path = `/instances/${encodeURIComponent(worker)}`;
  return [
    actionButton({
      text: `Drain ${worker}`,
      method: "DELETE",
      path,
      explain: async () => [`All partitions of ${worker} move to other workers, and it gets no others.`],
    }),
    actionButton({
      text: `End draining of ${worker}`,
      method: "POST",
      path,
      explain: async () => [`${worker} gets partitions again.`],
    }),
  ];
}
