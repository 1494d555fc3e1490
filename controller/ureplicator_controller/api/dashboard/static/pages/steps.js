// Steps of a cutover as rows of a table, and for how long writes are blocked.
import { element } from "../grid/elements.js";

export const STEPS = {
  PLANNED: "the plan is stored",
  FENCED: "all brokers of the source show the fence; then its ends are read",
  DRAINED: "the positions of the copy have reached these ends",
  VERIFIED: "the tail was compared, or it is said why not",
  GROUPS: "the offsets of the groups are at the target",
  OPEN: "the decision: clients start at the target now",
  WATCHED: "the copy back is ONLINE",
  DONE: "nobody has written at the source for a while",
  ABORTED: "rights and offsets are as they were",
};
export const STEP_HEADS = ["step", "reached when", "progress", "took", "in the rehearsal", "at"];
const NAMES = Object.keys(STEPS);
const TICK_MS = 100;

export const took = (seconds) => (seconds === null || seconds === undefined ? "" : `${seconds.toFixed(2)} s`);

// True before OPEN: it can be aborted, and writes are still blocked if they ever were.
export const isBeforeOpen = (state) => NAMES.indexOf(state) < NAMES.indexOf("OPEN");

// Seconds and last time of each state that a run has reached. A write behind the fence takes it back to FENCED, so
// it may reach a state again.
function reachedOf(details) {
  const reached = new Map();
  for (const step of details.steps) {
    const before = reached.get(step.state);
    const seconds = step.seconds + (before ? before.seconds : 0);
    reached.set(step.state, { at: step.at, seconds, times: 1 + (before ? before.times : 0) });
  }
  return reached;
}

function progressOf(details, name, reached) {
  const [now, own] = [NAMES.indexOf(details.state), NAMES.indexOf(name)];
  if (details.state === "ABORTED") return reached.has(name) || name === "PLANNED" ? "reached" : "not reached";
  if (own <= now) return "reached";
  const isNext = own === now + 1 && details.run && ["start", "abort"].includes(details.wanted);
  if (isNext) return details.wanted === "abort" ? "given up" : "under way";
  return "to come";
}

// Rows of the table, those to come in grey. ABORTED is a step of aborted runs alone.
export function stepRows(details) {
  const reached = reachedOf(details);
  const shown = NAMES.filter((name) => name !== "ABORTED" || details.state === name);
  return shown.map((name) => {
    const progress = progressOf(details, name, reached);
    const step = reached.get(name);
    const kind = ["reached", "under way"].includes(progress) ? "" : "quiet";
    const text = [
      name,
      STEPS[name],
      progress,
      step ? `${took(step.seconds)}${step.times > 1 ? ` in ${step.times} times` : ""}` : "",
      took(details.rehearsal[name]),
      step ? new Date(step.at).toLocaleTimeString() : "",
    ];
    const cells = text.map((each) => element("span", { text: each, kind }));
    if (name === details.state) cells[0].ariaCurrent = "step";
    return cells;
  });
}

// Seconds for which writes are blocked; they are counted on while the element is shown and writes still are.
export function blockedText(cutover) {
  const shown = element("span", { text: took(cutover.blockedSeconds) });
  if (cutover.blockedSeconds === null || !isBeforeOpen(cutover.state)) return shown;
  const readAt = performance.now();
  const timer = setInterval(() => {
    if (!shown.isConnected) clearInterval(timer);
    shown.textContent = `${took(cutover.blockedSeconds + (performance.now() - readAt) / 1000)} so far`;
  }, TICK_MS);
  return shown;
}
