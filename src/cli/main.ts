#!/usr/bin/env node
/** `holdfast`: finds the command, runs it, and ends with its exit code. */

import { constants } from "node:os";
import { MAX_TIMEOUT_MS } from "../util/duration.ts";
import { CommandError, toCommandError, toFileLimitError } from "./errors.ts";
import { escapeControl, formatJsonLine, handleWarnings, info, writeStderr } from "./output.ts";
import { runProgram } from "./program.ts";
import { InterruptedError } from "./signals.ts";

const argv = process.argv.slice(2);

// Node would exit with 1, which looks like the exit code of the command. The watchdog ends the command.
process.once("uncaughtException", (error) =>
  exitWithError(toFileLimitError(error) ?? new CommandError("internal", error.message, { cause: error })),
);

const isMuted = (): boolean => ["--quiet", "-q"].some((flag) => ownArguments().includes(flag));
handleWarnings((warning) => {
  if (!isMuted() && !ownArguments().includes("--json")) info(`warning: ${escapeControl(warning)}`);
});

// calls to a store do not keep the process alive
setInterval(() => undefined, MAX_TIMEOUT_MS);

runProgram(argv).then(exit, (error: unknown) => {
  if (error instanceof InterruptedError) exitBySignal(error.signal);
  else exitWithError(toCommandError(error, "the store"));
});

/** The arguments of holdfast itself, without those of the command to run. */
function ownArguments(): readonly string[] {
  return argv.slice(0, argv.includes("--") ? argv.indexOf("--") : argv.length);
}

function exitWithError(error: CommandError): void {
  const { kind, code, message, details } = error;
  if (ownArguments().includes("--json")) writeStderr(formatJsonLine({ error: kind, code, message, ...details }));
  else if (kind === "internal") info(`internal error (please report it): ${message}`);
  else if (!isMuted()) for (const line of message.split("\n")) info(line);
  if (kind === "internal" && (ownArguments().includes("--verbose") || ownArguments().includes("-v")))
    writeStderr(String(error.cause instanceof Error ? error.cause.stack : error.stack));
  exit(code);
}

/** Every lock is released or left to the store by now. A connection that is still open must not delay the exit. */
function exit(code: number): void {
  process.exit(code);
}

/** Ends by the signal itself, so that the parent process sees it. */
function exitBySignal(name: NodeJS.Signals): void {
  process.removeAllListeners(name);
  process.kill(process.pid, name);
  // the signal ends the process within moments, unless it is blocked
  setTimeout(() => exit(128 + constants.signals[name]), 1_000);
}
