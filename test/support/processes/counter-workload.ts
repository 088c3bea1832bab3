/**
 * Programs that work on one file counter, and the check that they never did so together.
 *
 * Each is a shell: it reads the counter, waits, and replaces it by one more. Before and after it appends a line to one
 * history, each in one write (O_APPEND), so the order of the lines is the order of the events. A second look, that needs
 * no line of a killed one: who enters finds the process of the last one to enter in a file, and says so if it lives.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const COUNTER_SCRIPT = `
cd "$1" || exit 9
started() { # sets start; fails for a process that has ended
  { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  set -- \${stat##*) }
  case $1 in [ZX]) return 1 ;; esac
  shift 19
  start=$1
}
read -r now rest </proc/uptime
if read -r other since <inside && [ -n "$other" ] && started "$other" && [ "$start" = "$since" ]; then
  echo "overlap $$ $now $other" >>history
fi
started $$
echo "$$ $start" >inside
read -r n <counter
echo "enter $$ $now $n" >>history
case $2 in
  /*) until [ -e "$2" ]; do sleep 0.02; [ $((turns += 1)) -lt 3000 ] || exit 9; done ;;
  *) sleep "$2" ;;
esac
echo $((n + 1)) >"counter.$$" && mv "counter.$$" counter
: >inside
read -r now rest </proc/uptime
echo "leave $$ $now $n" >>history
`;

export type CounterWorkload = {
  /** The command that counts once, taking this many seconds, or until there is a file of this path. */
  command(until: number | string): readonly [string, ...string[]];
  /** Who is inside, or was when it was killed. */
  currentPid(): number | null;
  history(): History;
};

type History = {
  /** What must not have happened: two together, or a lost update. */
  readonly faults: readonly string[];
  readonly entered: number;
  readonly exited: number;
  readonly counter: number;
  /** The longest time between a leave and the next enter, in seconds (to 10 ms). */
  readonly longestGap: number;
};

/** A counter at 0 in this folder. */
export function createCounterWorkload(folder: string): CounterWorkload {
  const script = join(folder, "count.sh");
  writeFileSync(script, COUNTER_SCRIPT);
  writeFileSync(join(folder, "counter"), "0\n");
  writeFileSync(join(folder, "inside"), "");
  writeFileSync(join(folder, "history"), "");
  return {
    command: (endTime) => ["sh", script, folder, String(endTime)],
    currentPid: () => Number(readFileSync(join(folder, "inside"), "utf8").split(" ")[0]) || null,
    history: () => parseHistory(readFileSync(join(folder, "history"), "utf8"), readCounter(folder)),
  };
}

function readCounter(folder: string): number {
  return Number(readFileSync(join(folder, "counter"), "utf8"));
}

type HistoryLine = { readonly what: string; readonly pid: string; readonly at: number; readonly n: number };

function parseHistory(text: string, counter: number): History {
  const lines: HistoryLine[] = text
    .trimEnd()
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const [what = "", pid = "", at, n] = line.split(" ");
      return { what, pid, at: Number(at), n: Number(n) };
    });
  const faults: string[] = [];
  let inside: HistoryLine | null = null;
  let [entered, exited, longestGap] = [0, 0, 0];
  let leftAt: number | null = null;
  // what the counter may be: one who was killed has raised it or not
  let possibleValues = [0];
  const fault = (line: HistoryLine, reason: string): void =>
    void faults.push(`${reason}: ${line.what} ${line.pid} ${line.n} at ${line.at}`);
  for (const line of lines) {
    if (line.what === "enter") {
      entered++;
      if (!possibleValues.includes(line.n)) fault(line, `the counter should be ${possibleValues.join(" or ")}`);
      if (leftAt !== null) longestGap = Math.max(longestGap, line.at - leftAt);
      inside = line;
      leftAt = null;
      possibleValues = [line.n, line.n + 1];
    } else if (line.what === "leave") {
      exited++;
      if (inside?.pid !== line.pid) fault(line, "another one was inside");
      inside = null;
      leftAt = line.at;
      possibleValues = [line.n + 1];
    } else {
      fault(line, "the last one was still alive");
    }
  }
  if (!possibleValues.includes(counter))
    faults.push(`the counter is ${counter}, it should be ${possibleValues.join(" or ")}`);
  if (counter < exited) faults.push(`the counter is ${counter} after ${exited} updates`);
  return { faults, entered, exited, counter, longestGap };
}
