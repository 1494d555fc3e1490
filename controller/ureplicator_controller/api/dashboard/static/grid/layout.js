// Places of tiles: a block for each worker, its partitions in lines from left to right. Pure functions.

const LABEL_HEIGHT = 22;
const BLOCK_GAP = 8;

// Edge of a tile with its gap, in CSS pixels: all tiles are to be seen at once.
export function pitchFor(count) {
  if (count <= 400) return 20;
  if (count <= 2500) return 12;
  return 8;
}

// `shown`: indices of tiles; `workerOf`: worker of each tile, -1 for none; `workers`: number of workers.
// -> blocks of { worker, top, labelTop, tiles }, with the height of all.
export function layout({ shown, workerOf, workers, width }) {
  const pitch = pitchFor(shown.length);
  const perLine = Math.max(1, Math.floor(width / pitch));
  const groups = new Map();
  for (let worker = 0; worker < workers; worker += 1) groups.set(worker, []);
  groups.set(-1, []);
  for (const index of shown) groups.get(workerOf[index]).push(index);
  const blocks = [];
  let top = 0;
  for (const [worker, tiles] of groups) {
    if (!tiles.length) continue;
    const lines = Math.ceil(tiles.length / perLine);
    blocks.push({ worker, labelTop: top, top: top + LABEL_HEIGHT, tiles });
    top += LABEL_HEIGHT + lines * pitch + BLOCK_GAP;
  }
  return { blocks, height: Math.max(top, LABEL_HEIGHT), pitch, perLine };
}

// Place of the tile at a position in its block.
export function placeOf(drawn, block, position) {
  const { pitch, perLine } = drawn;
  return { x: (position % perLine) * pitch, y: block.top + Math.floor(position / perLine) * pitch };
}

// { block, position } of the tile at a point; null for none.
export function tileAt(drawn, x, y) {
  const { pitch, perLine } = drawn;
  const column = Math.floor(x / pitch);
  if (column < 0 || column >= perLine) return null;
  for (const block of drawn.blocks) {
    const line = Math.floor((y - block.top) / pitch);
    const position = line * perLine + column;
    if (line >= 0 && position < block.tiles.length) {
      if (y < block.top + Math.ceil(block.tiles.length / perLine) * pitch) return { block, position };
    }
  }
  return null;
}

// { block, position } after an arrow key; the same at an edge.
export function moved(drawn, { block, position }, key) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -drawn.perLine, ArrowDown: drawn.perLine };
  const next = position + steps[key];
  if (next >= 0 && next < block.tiles.length) return { block, position: next };
  const at = drawn.blocks.indexOf(block) + (next < 0 ? -1 : 1);
  const other = drawn.blocks[at];
  if (!other) return { block, position };
  return { block: other, position: next < 0 ? other.tiles.length - 1 : 0 };
}
