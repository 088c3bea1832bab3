#!/usr/bin/env node
/** `holdfast`: finds the command, runs it, and ends with its exit code. */

import { constants } from "node:os";
import { parseAndRun } from "./commands.ts";
import { CommandError, commandError } from "./failure.ts";
import { complain, jsonLine, say, visible } from "./output.ts";
import { InterruptedError } from "./signals.ts";
import { warnBy } from "./warnings.ts";

const argv = process.argv.slice(2);

// nobody may take a defect of ours for the exit code of the program that was run; its guard ends that one
process.once("uncaughtException", (error) => fail(new CommandError("internal", error.message, { cause: error })));

const isMuted = (): boolean => ["--quiet", "-q"].some((flag) => own().includes(flag));
warnBy((warning) => {
  if (!isMuted() && !own().includes("--json")) say(`warning: ${visible(warning)}`);
});

try {
  finish(await parseAndRun(argv));
} catch (error) {
  if (error instanceof InterruptedError) endBySignal(error.signal);
  else fail(commandError(error, "the store"));
}

/** The words that are ours, and not those of the command to run. */
function own(): readonly string[] {
  return argv.slice(0, argv.includes("--") ? argv.indexOf("--") : argv.length);
}

function fail(error: CommandError): void {
  const { why, code, message, details } = error;
  if (own().includes("--json")) complain(jsonLine({ error: why, code, message, ...details }));
  else if (why === "internal") say(`a defect of ours, please report it: ${message}`);
  else if (!isMuted()) for (const line of message.split("\n")) say(line);
  if (why === "internal" && (own().includes("--verbose") || own().includes("-v")))
    complain(String(error.cause instanceof Error ? error.cause.stack : error.stack));
  finish(code);
}

/** Everything was given back or left to the store, so what is still open (a connection that dies) need not keep us. */
function finish(code: number): void {
  process.exit(code);
}

/** As if we had never caught it: who started us sees the signal. */
function endBySignal(name: NodeJS.Signals): void {
  process.removeAllListeners(name);
  process.kill(process.pid, name);
  // a signal is delivered in a moment; one that is blocked never is
  setTimeout(() => finish(128 + constants.signals[name]), 1_000);
}
