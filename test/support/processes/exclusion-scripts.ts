/**
 * Commands that judge by themselves whether they are alone: each takes `flock -n` on a file of its key, which the kernel
 * frees with its last process, and writes its token down. What clients and server say plays no part.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../../src/testing/until.ts";

/** How a command ends: at once for TERM, 1.5 s after TERM, only for KILL. */
type TermBehavior = "obedient" | "slow" | "stubborn";

export type ExclusionScripts = {
  /** A command that works until the gate of this name is opened. */
  untilGate(name: string, behavior: TermBehavior): readonly [string, ...string[]];
  /** The same, of a command that closes every descriptor above 2 that it inherited. */
  untilGateClosedDescriptors(name: string, behavior: TermBehavior): readonly [string, ...string[]];
  /** A command that works beside others of its kind. */
  untilGateShared(name: string, behavior: TermBehavior): readonly [string, ...string[]];
  /** A command that enters and leaves. */
  enterAndLeave(name: string): readonly [string, ...string[]];
  /** The process ids of those that have begun to work. */
  workerPids(name: string): number[];
  /** The process id of the first that works. */
  waitForWorker(name: string): Promise<number>;
  openGate(name: string): void;
  /** Pairs that were inside at a time. */
  overlaps(): string[];
  /** The same, and tokens that did not rise. */
  faults(names: readonly string[]): string[];
};

const EXCLUSION_SCRIPT = `
name=$1 manner=$2 how=\${3:--x}
exec 9>>"$name.lock"
flock -n "$how" 9 || echo "$$ entered $name while another was inside" >>overlaps
echo "$HOLDFAST_TOKEN" >>"$name.tokens"
[ "$manner" = enters ] && exit 0
case $manner in
  stubborn) trap '' TERM ;;
  slow) trap 'left=75' TERM ;;
esac
echo $$ >>"$name.works"
while [ ! -e "$name.gate" ] && [ $((n += 1)) -lt 3000 ]; do
  [ -n "$left" ] && [ $((left -= 1)) -le 0 ] && exit 0
  sleep 0.02 9>&-
done
`;

/** Puts the script into this folder, which must be the commands' working directory. */
export function writeExclusionScripts(folder: string): ExclusionScripts {
  writeFileSync(join(folder, "judged.sh"), EXCLUSION_SCRIPT);
  const lines = (name: string): string[] => {
    const path = join(folder, name);
    return existsSync(path) ? readFileSync(path, "utf8").trimEnd().split("\n") : [];
  };
  const workerPids = (name: string): number[] => lines(`${name}.works`).map(Number);
  const closing = `for at in /proc/$$/fd/*; do at=\${at##*/}; [ "$at" -gt 2 ] && eval "exec $at>&-"; done; exec "$@"`;
  return {
    untilGate: (name, behavior) => ["sh", "judged.sh", name, behavior],
    untilGateClosedDescriptors: (name, behavior) => ["bash", "-c", closing, "bash", "sh", "judged.sh", name, behavior],
    untilGateShared: (name, behavior) => ["sh", "judged.sh", name, behavior, "-s"],
    enterAndLeave: (name) => ["sh", "judged.sh", name, "enters"],
    workerPids,
    waitForWorker: (name) => until(() => workerPids(name)[0], { within: 15_000, what: `${name} at work` }),
    overlaps: () => lines("overlaps"),
    openGate: (name) => writeFileSync(join(folder, `${name}.gate`), ""),
    faults(names) {
      const nonRisingKeys = names.filter((name) => {
        const tokens = lines(`${name}.tokens`).map(BigInt);
        return tokens.some((token, index) => index > 0 && token <= (tokens[index - 1] as bigint));
      });
      return [...lines("overlaps"), ...nonRisingKeys.map((name) => `the tokens of ${name} did not rise`)];
    },
  };
}
