/** Times as the pages show them. */

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A duration that moves: whole seconds, and at most two units: "12 s", "3 m 12 s", "2 h 5 m", "3 d 4 h". */
export function formatAge(ms: number): string {
  const whole = Math.max(0, Math.floor(ms));
  if (whole < MINUTE) return `${Math.floor(whole / SECOND)} s`;
  if (whole < HOUR) return joinUnits(whole, MINUTE, "m", SECOND, "s");
  if (whole < DAY) return joinUnits(whole, HOUR, "h", MINUTE, "m");
  return joinUnits(whole, DAY, "d", HOUR, "h");
}

function joinUnits(ms: number, large: number, largeName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % large) / small);
  const head = `${Math.floor(ms / large)} ${largeName}`;
  return rest === 0 ? head : `${head} ${rest} ${smallName}`;
}

/** A duration that is exact: "40 ms", "1.5 s", "2 m". */
export function formatExact(ms: number): string {
  if (ms < SECOND) return `${round(ms)} ms`;
  if (ms < MINUTE) return `${round(ms / SECOND)} s`;
  if (ms < HOUR) return `${round(ms / MINUTE)} m`;
  return ms < DAY ? `${round(ms / HOUR)} h` : `${round(ms / DAY)} d`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** A time of day, "10:42:07", in the zone of the viewer. */
export function formatClock(at: number): string {
  const date = new Date(at);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** A time of day with the date before it, if it is not that of `now`: "2026-11-30 10:42:07". */
export function formatMoment(at: number, now: number): string {
  const [day, today] = [new Date(at), new Date(now)].map(formatDay);
  return day === today ? formatClock(at) : `${day} ${formatClock(at)}`;
}

function formatDay(date: Date): string {
  const parts = [date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0"));
  return [date.getFullYear(), ...parts].join("-");
}

/** A count with commas between thousands. */
export function formatCount(count: number): string {
  return count.toLocaleString("en-US");
}

/** "1 key", "2 keys" */
export function formatAmount(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** A rate per second: "0", "0.4", "12". */
export function formatRate(rate: number): string {
  return rate < 10 ? String(round(rate)) : formatCount(Math.round(rate));
}
