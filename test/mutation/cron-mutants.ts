/** Faults in the claims on ticks: a tick runs twice, or not at all. */

import type { Mutant } from "./mutants.ts";

const tick = { file: "src/cron/tick.ts", tests: "test/unit/cron/cron.test.ts" };

export const CRON_MUTANTS: readonly Mutant[] = [
  {
    ...tick,
    name: "a tick that is free again when its process closes its client",
    find: "    await lock.detach({ ttl });\n",
    replace: "",
  },
  {
    ...tick,
    name: "a tick that is free again before the slowest clock has come",
    find: "tick.getTime() + maxDelayMs + clockSkewMs - Date.now()",
    replace: "tick.getTime() + maxDelayMs - Date.now()",
  },
  {
    ...tick,
    name: "a claim on a tick that counts though it was answered too late",
    find: "  if (isLate()) {\n",
    replace: "  if (isLate() && ttl < 0) {\n",
  },
  {
    ...tick,
    name: "a tick claimed by a process that comes too late",
    find: '  if (isLate()) return "late";\n',
    replace: "",
  },
  {
    file: "src/cron/job.ts",
    tests: tick.tests,
    name: "a tick that runs beside an earlier one though they may not overlap",
    find: '(await locks.tryAcquire(key, { maxHold, cache: 0 })) ?? "overlap"',
    replace: "await locks.tryAcquire(key, { maxHold, cache: 0 })",
  },
  {
    file: "src/cron/job.ts",
    tests: tick.tests,
    name: "a job that starts itself again joins its own lock",
    find: 'if (locks.holds(key)) return "overlap";',
    replace: "",
  },
  {
    ...tick,
    name: "a timer that fires early names the tick before",
    find: "Math.round(time.getTime() / SECOND_MS)",
    replace: "Math.floor(time.getTime() / SECOND_MS)",
  },
  {
    file: "src/cron/tick-source.ts",
    tests: tick.tests,
    name: "a run of the package cron before which the clock was set back names the tick before",
    find: "const EARLY_MS = 50;",
    replace: "const EARLY_MS = 0;",
  },
];
