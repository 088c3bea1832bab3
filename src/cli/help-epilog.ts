/** The text after the flags in a command's help: examples verbatim, notes wrapped to the terminal. */

import type { Command } from "commander";

/** The text after the flags of one command. */
export interface Epilog {
  /** Command lines, without a prompt. A continued command line contains a backslash and a newline. */
  readonly examples: readonly string[];
  /** Paragraphs, each on one line. */
  readonly notes: readonly string[];
}

const epilogs = new WeakMap<Command, Epilog>();

/** Longer lines are hard to read, even if the terminal is wider. */
const MAX_COLUMNS = 100;

/** Adds examples and notes to a command's help. */
export function addEpilog(command: Command, examples: readonly string[], ...notes: readonly string[]): Command {
  const epilog = { examples, notes };
  epilogs.set(command, epilog);
  return command.addHelpText("after", ({ error, command: helpedCommand }) => {
    const { getOutHelpWidth, getErrHelpWidth } = helpedCommand.configureOutput();
    const columns = (error ? getErrHelpWidth : getOutHelpWidth)?.() ?? 80;
    const help = helpedCommand.createHelp();
    return [formatExamples(epilog).join("\n"), ...notes.map((note) => help.boxWrap(note, columns))]
      .map((part) => `\n${part}`)
      .join("\n");
  });
}

/** The epilog that addEpilog() stored; empty if there is none. */
export function getEpilog(command: Command): Epilog {
  return epilogs.get(command) ?? { examples: [], notes: [] };
}

/** The examples with their heading. */
export function formatExamples({ examples }: Epilog): string[] {
  return ["Examples:", ...examples.map((line) => `  $ ${line.replaceAll("\n", "\n      ")}`)];
}

/** The width of help on a stream: the width of its terminal, up to MAX_COLUMNS; 80 columns in a pipe. */
export function helpWidth({ isTTY, columns }: { readonly isTTY?: boolean; readonly columns?: number }): number {
  return Math.min((isTTY === true ? columns : undefined) || 80, MAX_COLUMNS);
}
