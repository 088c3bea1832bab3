/** Commands for runs whose wrapper is to die: they say who works, and the next one looks whether they still do. */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../support/wait-for.ts";
import type { Scene } from "./scene.ts";

export type Children = {
  /** Works for ever, with two processes below it, one of them in a session of its own. */
  readonly family: readonly [string, ...string[]];
  /** The same; none of them ends for TERM. */
  readonly stubborn: readonly [string, ...string[]];
  /** Fails with 1 if one of a family is alive when it begins, and names it on its output. */
  readonly looker: readonly [string, ...string[]];
  /** The ids of a family, once all of it works. */
  atWork(): Promise<number[]>;
};

const FAMILY = 3;
/** The end of a loop: should the test runner itself be killed, nobody works on for ever. */
const BOUND = "&& [ $((n += 1)) -lt 6000 ]; do sleep 0.02; done";

const MEMBER = `
[ "$1" = stubborn ] && trap '' TERM
echo $$ >>pids
while : ${BOUND}
`;

const HEAD = `
[ "$1" = stubborn ] && trap '' TERM
sh member.sh "$1" &
setsid sh member.sh "$1" &
. ./member.sh
`;

const LOOKER = `
code=0
for pid in $(cat pids); do
  { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || continue
  case \${stat##*) } in [ZX]*) ;; *) echo "alive $pid"; code=1 ;; esac
done
exit $code
`;

/** Puts them into this folder, which must be their working directory. */
export function children(folder: string): Children {
  writeFileSync(join(folder, "member.sh"), MEMBER);
  writeFileSync(join(folder, "head.sh"), HEAD);
  writeFileSync(join(folder, "look.sh"), LOOKER);
  const pids = (): number[] => {
    const path = join(folder, "pids");
    return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n").map(Number) : [];
  };
  return {
    family: ["sh", "head.sh", "obedient"],
    stubborn: ["sh", "head.sh", "stubborn"],
    looker: ["sh", "look.sh"],
    atWork: () =>
      until(() => (pids().length === FAMILY ? pids() : null), {
        within: 10_000,
        what: `a family of ${FAMILY} at work`,
      }),
  };
}

/** Says "works", and waits in the scene's folder until the gate is opened. */
export const GATED: readonly [string, ...string[]] = ["sh", "-c", `echo works; while [ ! -e gate ] ${BOUND}`];

/** Lets the gated through. */
export function openGate(here: Scene): void {
  writeFileSync(here.path("gate"), "");
}
