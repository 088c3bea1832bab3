/** Commands for runs whose wrapper is to die: they say who works, and the next one looks whether they still do. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../../src/testing/until.ts";
import type { ProcessHarness } from "./process-harness.ts";

export type ChildScripts = {
  /** Works for ever, with two processes below it, one of them in a session of its own. */
  readonly family: readonly [string, ...string[]];
  /** The same; none of them ends for TERM. */
  readonly stubborn: readonly [string, ...string[]];
  /** Fails with 1 if one of a family is alive when it begins, and names it on its output. */
  readonly aliveCheck: readonly [string, ...string[]];
  /** The ids of a family, once all of it works. */
  waitUntilWorking(): Promise<number[]>;
};

const TREE_SIZE = 3;
/** The end of a loop: should the test runner itself be killed, nobody works on for ever. */
const LOOP_LIMIT = "&& [ $((n += 1)) -lt 6000 ]; do sleep 0.02; done";

const MEMBER_SCRIPT = `
[ "$1" = stubborn ] && trap '' TERM
echo $$ >>pids
while : ${LOOP_LIMIT}
`;

const HEAD_SCRIPT = `
[ "$1" = stubborn ] && trap '' TERM
sh member.sh "$1" &
setsid sh member.sh "$1" &
. ./member.sh
`;

const ALIVE_CHECK_SCRIPT = `
code=0
for pid in $(cat pids); do
  { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || continue
  case \${stat##*) } in [ZX]*) ;; *) echo "alive $pid"; code=1 ;; esac
done
exit $code
`;

/** Puts them into this folder, which must be their working directory. */
export function writeChildScripts(folder: string): ChildScripts {
  writeFileSync(join(folder, "member.sh"), MEMBER_SCRIPT);
  writeFileSync(join(folder, "head.sh"), HEAD_SCRIPT);
  writeFileSync(join(folder, "look.sh"), ALIVE_CHECK_SCRIPT);
  const pids = (): number[] => {
    const path = join(folder, "pids");
    return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n").map(Number) : [];
  };
  return {
    family: ["sh", "head.sh", "obedient"],
    stubborn: ["sh", "head.sh", "stubborn"],
    aliveCheck: ["sh", "look.sh"],
    waitUntilWorking: () =>
      until(() => (pids().length === TREE_SIZE ? pids() : null), {
        within: 10_000,
        what: `a family of ${TREE_SIZE} at work`,
      }),
  };
}

/** Says "works", and waits in the scene's folder until the gate is opened. */
export const GATED_COMMAND: readonly [string, ...string[]] = [
  "sh",
  "-c",
  `echo works; while [ ! -e gate ] ${LOOP_LIMIT}`,
];

/** Lets the gated through. */
export function openGate(harness: ProcessHarness): void {
  writeFileSync(harness.path("gate"), "");
}
