/** The width of help, and the text below the flags in the help of a command. */

import type { Command } from "commander";

/** The text below the flags of one command. */
export interface Epilog {
  /** Command lines, without a prompt. A continued command line contains a backslash and a newline. */
  readonly examples: readonly string[];
  /** Paragraphs, each on one line. */
  readonly notes?: readonly string[];
}

/** Longer lines are hard to read, even if the terminal is wider. */
const MAX_COLUMNS = 100;

/** The width of help on a stream: the width of its terminal, up to MAX_COLUMNS; 80 columns in a pipe. */
export function helpWidth({ isTTY, columns }: { readonly isTTY?: boolean; readonly columns?: number }): number {
  return Math.min((isTTY === true ? columns : undefined) || 80, MAX_COLUMNS);
}

/** Adds examples verbatim, and notes wrapped to the terminal, to a command's help. */
export function addEpilog(command: Command, epilog: Epilog): Command {
  return command.addHelpText("after", ({ error, command: helpedCommand }) => {
    const { getOutHelpWidth, getErrHelpWidth } = helpedCommand.configureOutput();
    const columns = (error ? getErrHelpWidth : getOutHelpWidth)?.() ?? 80;
    const help = helpedCommand.createHelp();
    const notes = (epilog.notes ?? []).map((note) => help.boxWrap(note, columns));
    const examples = epilog.examples.map((line) => `  $ ${line.replaceAll("\n", "\n      ")}`);
    return [["Examples:", ...examples].join("\n"), ...notes].map((part) => `\n${part}`).join("\n");
  });
}
