/** Numbers and times as the reports show them. */

const MICROS_PER_MS = 1_000;
const MICROS_PER_SECOND = 1_000_000;

export function formatCount(count: number): string {
  return count.toLocaleString("en");
}

export function formatMs(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${ms < 10 ? ms.toFixed(1) : ms.toFixed(0)} ms`;
}

/** A point in time of a run: seconds since its start. */
export function formatSeconds(micros: number): string {
  return `${(micros / MICROS_PER_SECOND).toFixed(3)} s`;
}

/** The distance of two points in time. */
export function formatDistance(micros: number): string {
  return formatMs(micros / MICROS_PER_MS);
}
