#!/usr/bin/env node
/** `holdfast`: finds the command, runs it, and ends with its exit code. */

import { constants } from "node:os";
import { CommandError, toCommandError } from "./errors.ts";
import { escapeControl, formatJsonLine, info, writeStderr } from "./output.ts";
import { runProgram } from "./program.ts";
import { InterruptedError } from "./signals.ts";
import { handleWarnings } from "./warnings.ts";

const argv = process.argv.slice(2);

// nobody may take a defect of ours for the exit code of the program that was run; its guard ends that one
process.once("uncaughtException", (error) =>
  exitWithError(new CommandError("internal", error.message, { cause: error })),
);

const isMuted = (): boolean => ["--quiet", "-q"].some((flag) => ownArguments().includes(flag));
handleWarnings((warning) => {
  if (!isMuted() && !ownArguments().includes("--json")) info(`warning: ${escapeControl(warning)}`);
});

try {
  exit(await runProgram(argv));
} catch (error) {
  if (error instanceof InterruptedError) exitBySignal(error.signal);
  else exitWithError(toCommandError(error, "the store"));
}

/** The words that are ours, and not those of the command to run. */
function ownArguments(): readonly string[] {
  return argv.slice(0, argv.includes("--") ? argv.indexOf("--") : argv.length);
}

function exitWithError(error: CommandError): void {
  const { kind, code, message, details } = error;
  if (ownArguments().includes("--json")) writeStderr(formatJsonLine({ error: kind, code, message, ...details }));
  else if (kind === "internal") info(`a defect of ours, please report it: ${message}`);
  else if (!isMuted()) for (const line of message.split("\n")) info(line);
  if (kind === "internal" && (ownArguments().includes("--verbose") || ownArguments().includes("-v")))
    writeStderr(String(error.cause instanceof Error ? error.cause.stack : error.stack));
  exit(code);
}

/** Everything was given back or left to the store, so what is still open (a connection that dies) need not keep us. */
function exit(code: number): void {
  process.exit(code);
}

/** As if we had never caught it: who started us sees the signal. */
function exitBySignal(name: NodeJS.Signals): void {
  process.removeAllListeners(name);
  process.kill(process.pid, name);
  // a signal is delivered in a moment; one that is blocked never is
  setTimeout(() => exit(128 + constants.signals[name]), 1_000);
}
