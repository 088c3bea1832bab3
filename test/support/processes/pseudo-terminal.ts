/** A terminal, by script(1): what is typed at it goes through the line discipline, as from a keyboard. */

import { existsSync } from "node:fs";
import type { ProcessHarness, RunningProcess } from "./process-harness.ts";

export type PseudoTerminal = RunningProcess & {
  /** As at the keyboard; "\u0003" is Ctrl-C. */
  type(text: string): void;
};

/** Runs a shell command in a terminal of its own, in the scene's folder. */
export function startInTerminal(harness: ProcessHarness, command: string): PseudoTerminal {
  if (!existsSync("/usr/bin/script")) throw new Error("script(1) is missing: install bsdutils or util-linux");
  const running = harness.startProgram(["script", "-qec", command, "/dev/null"], {
    input: true,
    env: { SHELL: "/bin/sh" },
  });
  return { ...running, type: (text) => void running.process.stdin?.write(text) };
}
