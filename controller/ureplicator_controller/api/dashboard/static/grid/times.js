// Durations in the words of REST's sentences.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "not known";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function since(wallMs, nowMs) {
  return wallMs ? `${duration(Math.max(0, (nowMs - wallMs) / 1000))} ago` : "";
}
