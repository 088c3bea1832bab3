/**
 * The clock of a process with a schedule: at another time of the year, which begins with the test, faster than the real one, and
 * ahead of the clocks of others. Imported for its effect, before the scheduler. The arguments: the scheduler; the file; the real time
 * of the beginning; what the clock shows then; how many milliseconds it is ahead.
 */

const SPEED = 5;

const [, , , , realStart = "", shownStart = "", aheadMs = ""] = process.argv;
const MachineDate = Date;
const setMachineTimeout = setTimeout;

function now(): number {
  return Number(shownStart) + Number(aheadMs) + Math.floor((MachineDate.now() - Number(realStart)) * SPEED);
}

globalThis.Date = class extends MachineDate {
  constructor(...args: unknown[]) {
    super(...((args.length === 0 ? [now()] : args) as [number]));
  }
  static override now(): number {
    return now();
  }
} as DateConstructor;

// the timers of the library end early, too: it looks at its own clock then, and waits for the rest
globalThis.setTimeout = ((fn: () => void, ms = 0, ...args: []) =>
  setMachineTimeout(fn, ms / SPEED, ...args)) as typeof setTimeout;
