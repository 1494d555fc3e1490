// Draws the tiles on a canvas: 10,000 elements would be slow, 10,000 rectangles are not.
import { opacityOf } from "./brightness.js";
import { placeOf } from "./layout.js";

const GAP = 2;

// `overview` with its tiles, `drawn` of layout(), `selected` { block, position } or null.
export function draw(canvas, { overview, drawn, selected, width }) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(drawn.height * ratio);
  canvas.style.height = `${drawn.height}px`;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(document.documentElement);
  const colours = overview.states.map((state) => style.getPropertyValue(`--${state}`).trim());
  const ink = style.getPropertyValue("--ink").trim();
  for (const block of drawn.blocks) {
    drawLabel(context, overview, block, ink);
    drawTiles(context, { overview, drawn, block, colours });
  }
  if (selected) outline(context, drawn, selected, ink);
}

function drawLabel(context, overview, block, ink) {
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.font = "13px system-ui, sans-serif";
  context.textBaseline = "top";
  context.fillText(labelOf(overview, block), 0, block.labelTop + 4);
}

export function labelOf(overview, block) {
  const count = `${block.tiles.length.toLocaleString("en")} partitions`;
  if (block.worker < 0) return `no worker: ${count}`;
  const { worker, live, drained } = overview.workers[block.worker];
  const words = [live ? "" : "gone", drained ? "drained" : ""].filter(Boolean);
  return `${worker}${words.length ? ` (${words.join(", ")})` : ""}: ${count}`;
}

function drawTiles(context, { overview, drawn, block, colours }) {
  const edge = drawn.pitch - GAP;
  const { state, lagSeconds } = overview.tiles;
  block.tiles.forEach((index, position) => {
    const { x, y } = placeOf(drawn, block, position);
    context.globalAlpha = opacityOf(lagSeconds[index]);
    context.fillStyle = colours[state[index]];
    context.fillRect(x, y, edge, edge);
  });
}

function outline(context, drawn, { block, position }, ink) {
  const { x, y } = placeOf(drawn, block, position);
  context.globalAlpha = 1;
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.strokeRect(x - 1, y - 1, drawn.pitch, drawn.pitch);
}
