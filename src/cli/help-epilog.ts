/** What stands behind the flags in a command's help: examples as they are, notes wrapped to the terminal. */

import type { Command } from "commander";

/** Behind the flags of one command. */
export interface Epilog {
  /** Command lines, without a prompt. One that is continued has a backslash and a newline in it. */
  readonly examples: readonly string[];
  /** A paragraph each, on one line. */
  readonly notes: readonly string[];
}

const epilogs = new WeakMap<Command, Epilog>();

/** Lines longer than this are hard to read, however wide the terminal is. */
const MAX_COLUMNS = 100;

/** Adds examples and notes to a command's help. */
export function addEpilog(command: Command, examples: readonly string[], ...notes: readonly string[]): Command {
  const epilog = { examples, notes };
  epilogs.set(command, epilog);
  return command.addHelpText("after", ({ error, command: shown }) => {
    const { getOutHelpWidth, getErrHelpWidth } = shown.configureOutput();
    const columns = (error ? getErrHelpWidth : getOutHelpWidth)?.() ?? 80;
    const help = shown.createHelp();
    return [formatExamples(epilog).join("\n"), ...notes.map((note) => help.boxWrap(note, columns))]
      .map((part) => `\n${part}`)
      .join("\n");
  });
}

/** What addEpilog() was given, or nothing. */
export function getEpilog(command: Command): Epilog {
  return epilogs.get(command) ?? { examples: [], notes: [] };
}

/** The examples below their heading. */
export function formatExamples({ examples }: Epilog): string[] {
  return ["Examples:", ...examples.map((line) => `  $ ${line.replaceAll("\n", "\n      ")}`)];
}

/** How wide help is written on a stream: as wide as its terminal, in a pipe 80 columns. */
export function helpWidth({ isTTY, columns }: { readonly isTTY?: boolean; readonly columns?: number }): number {
  return Math.min((isTTY === true ? columns : undefined) || 80, MAX_COLUMNS);
}
