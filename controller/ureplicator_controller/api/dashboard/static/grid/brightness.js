// Brightness of a tile: full without lag, weaker the longer its next record has waited.

const FULL_S = 1;
const WEAKEST_S = 3600;
const WEAKEST = 0.35;

// Opacity by the lag in seconds, on a logarithmic scale; an unknown lag is drawn as none.
export function opacityOf(lagSeconds) {
  if (lagSeconds === null || lagSeconds <= FULL_S) return 1;
  const share = Math.log(lagSeconds / FULL_S) / Math.log(WEAKEST_S / FULL_S);
  return Math.max(WEAKEST, 1 - share * (1 - WEAKEST));
}
