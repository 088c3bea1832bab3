/**
 * A continuous load of `holdfast run`, and its judges. Each command takes a kernel lock (flock) on a file of each of its
 * keys, without waiting, and writes its token to that key's register: the kernel decides, not what clients believe.
 * Most commands ignore TERM and finish their work unless they are killed.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Random } from "../../../src/testing/random.ts";
import { PROGRAM } from "../../support/cli-sandbox.ts";
import type { ProcessHarness, RunningProcess } from "../../support/processes/process-harness.ts";

/** Arguments: exclusive or shared, obedient or stubborn, for how many seconds, keys. */
const EXCLUSION_SCRIPT = `
mode=$1 manner=$2 seconds=$3; shift 3
[ "$manner" = stubborn ] && trap '' TERM
say() { echo "$1 $mode $token $$ $2" >>judge.log; }
lock() { # descriptor, key
  if [ "$mode" = shared ]; then flock -n -s "$1"; else flock -n "$1"; fi || { say overlap "$2"; exit 0; }
}
register() { # key
  [ "$mode" = shared ] && return
  last=$(cat "$1.register" 2>/dev/null || echo 0)
  [ "$token" -gt "$last" ] || say "stale:$last" "$1"
  echo "$token" >"$1.register.$$" && mv "$1.register.$$" "$1.register"
}
# each key has a token of its own where the store takes several keys one by one
for_each_key() { # what to do, keys
  task=$1; shift
  line=1
  for key do
    token=$(printf '%s\\n' "$HOLDFAST_TOKENS" | sed -n "$line"p)
    "$task" "$key"
    line=$((line + 1))
  done
}
enter() { register "$1"; say enter "$1"; } # key
leave() { # key
  [ "$mode" = shared ] || [ "$(cat "$1.register")" = "$token" ] || say overtaken "$1"
  say leave "$1"
}
exec 7>"$1.flock"; lock 7 "$1"
[ $# -lt 2 ] || { exec 8>"$2.flock"; lock 8 "$2"; }
for_each_key enter "$@"
: >"working.$PPID"
sleep "$seconds" 7>&- 8>&-
rm -f "working.$PPID"
for_each_key leave "$@"
`;

const KEYS = ["a", "b"];
/**
 * Ends of a run that a fault may cause: done, lost, not granted in time, store unreachable, run file could not be
 * written; null: killed by the nemesis.
 */
const ALLOWED_EXIT_CODES: readonly (number | null)[] = [0, 123, 124, 69, 74, null];

/** How runs use a target. */
export interface ClientSettings {
  readonly url: string;
  /** Flags of the lease and the grace; short, so that waiting for the end of a lease takes little time. */
  readonly leaseFlags: readonly string[];
  /** A prefix for their commands, if they must run in the target's namespace. */
  readonly commandPrefix?: readonly string[];
}

export interface RunWorkload {
  /** A wrapper: preferably one whose command is running. Null: none runs. */
  pickVictim(): RunningProcess | null;
  /** Commands that have entered so far. */
  countEntered(): number;
  /** Violations so far. */
  faults(): string[];
  /** How many runs have ended, by exit code. */
  exitCodes(): Record<string, number>;
  /** Starts no more runs. */
  stop(): void;
  /** Stops the load; settles when all runs have ended. */
  finish(): Promise<void>;
}

/** So many runs of a target at any time. */
export function startWorkload(
  harness: ProcessHarness,
  count: number,
  random: Random,
  { url, leaseFlags, commandPrefix = [] }: ClientSettings,
): RunWorkload {
  writeFileSync(harness.path("judged.sh"), EXCLUSION_SCRIPT);
  const alive = new Set<RunningProcess>();
  const exitCodes: Record<string, number> = {};
  const faults: string[] = [];
  let isOver = false;

  async function worker(): Promise<void> {
    while (!isOver) {
      const isShared = random.chance(0.2);
      const keys = !isShared && random.chance(0.3) ? KEYS : [random.pick(KEYS as [string, string])];
      const manner = random.chance(0.7) ? "stubborn" : "obedient";
      const seconds = random.chance(0.3) ? "2" : "0.1";
      const runOptions = ["--wait", "60s", ...leaseFlags, ...(isShared ? ["--shared"] : [])];
      const command = ["sh", "judged.sh", isShared ? "shared" : "exclusive", manner, seconds, ...keys];
      const holdfast = [process.execPath, PROGRAM, "run", ...keys, "--url", url, ...runOptions, "--", ...command];
      const [program = "", ...args] = [...commandPrefix, ...holdfast];
      const run = harness.startProgram([program, ...args]);
      alive.add(run);
      const { code, signal } = await run.ended;
      alive.delete(run);
      exitCodes[String(code ?? signal)] = (exitCodes[String(code ?? signal)] ?? 0) + 1;
      if (!ALLOWED_EXIT_CODES.includes(code)) faults.push(`a run ended with ${code}: ${run.err()}`);
      // an unreachable store is asked again only after a pause
      if (code !== 0) await delay(100);
    }
  }

  const workers = Array.from({ length: count }, worker);
  // a file that a command has just created is empty: its line comes with the next call
  const lines = (): string[] =>
    existsSync(harness.path("judge.log"))
      ? readFileSync(harness.path("judge.log"), "utf8")
          .split("\n")
          .filter((line) => line !== "")
      : [];
  return {
    pickVictim() {
      const running = [...alive];
      const working = running.filter(({ pid }) => existsSync(harness.path(`working.${pid}`)));
      const candidates = working.length > 0 && random.chance(0.9) ? working : running;
      return candidates.length === 0 ? null : random.pick(candidates as [RunningProcess, ...RunningProcess[]]);
    },
    countEntered: () => lines().filter((line) => line.startsWith("enter ")).length,
    faults: () => [...lines().filter((line) => !/^(enter|leave) /.test(line)), ...faults],
    exitCodes: () => exitCodes,
    stop() {
      isOver = true;
    },
    async finish() {
      isOver = true;
      await Promise.all(workers);
    },
  };
}
