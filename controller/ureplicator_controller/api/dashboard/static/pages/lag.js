// Chart of a topic's lag: how long its oldest record waited, as the controller has kept it.
import { byId, element } from "../grid/elements.js";
import { duration } from "../grid/times.js";

const HEIGHT = 150;
const LEFT_OUT_STEPS = 4; // a longer pause is a gap in the line

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Columns for the chart: seconds, and seconds of lag; null where the topic was not kept.
export function columns(body) {
  const times = [];
  const lags = [];
  const longestMs = LEFT_OUT_STEPS * Math.max(body.stepMs, 15000);
  body.at.forEach((at, index) => {
    if (index && at - body.at[index - 1] > longestMs) {
      times.push((at + body.at[index - 1]) / 2000);
      lags.push(null);
    }
    times.push(at / 1000);
    lags.push(body.lagSeconds[index]);
  });
  return [times, lags];
}

// Sentence for those who do not see the chart.
export function summary(body) {
  const known = body.lagSeconds.filter((each) => each !== null);
  if (!known.length) return "No lag is kept of this time: other topics lag more, or it was not known.";
  const worst = Math.max(...known);
  const at = new Date(body.at[body.lagSeconds.indexOf(worst)]).toLocaleTimeString();
  return `At most ${duration(worst)} (at ${at}), last ${duration(known[known.length - 1])}.`;
}

export function lagChart(body) {
  const text = summary(body);
  const shown = element("p", { text, kind: "quiet" });
  if (!body.at.length) return [shown];
  const frame = element("div", { role: "img", ariaLabel: `Lag over time. ${text}` });
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line") }, ticks: { stroke: colour("--line") } };
  const options = {
    width: byId("parts").clientWidth,
    height: HEIGHT,
    padding: [null, 32, null, null],
    legend: { show: false },
    scales: { x: { min: body.begin / 1000, max: body.end / 1000 }, y: { range: (_, low, high) => [0, Math.max(1, high || 1) * 1.1] } },
    axes: [axis, { ...axis, label: "lag, s", size: 60 }],
    series: [{}, { label: "lag, s", stroke: colour("--agree"), width: 1.5, spanGaps: false, points: { show: body.at.length < 3 } }],
  };
  new window.uPlot(options, columns(body), frame);
  return [shown, frame];
}
