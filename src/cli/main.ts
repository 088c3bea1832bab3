#!/usr/bin/env node
/** `holdfast`: finds the command, runs it, and ends with its exit code. */

import { constants } from "node:os";
import { parseAndRun } from "./commands.ts";
import type { CommandError } from "./failure.ts";
import { commandError } from "./failure.ts";
import { complain, jsonLine, say } from "./output.ts";
import { InterruptedError } from "./signals.ts";

const argv = process.argv.slice(2);

try {
  finish(await parseAndRun(argv));
} catch (error) {
  if (error instanceof InterruptedError) endBySignal(error.signal);
  else fail(commandError(error, "the store"));
}

function fail(error: CommandError): void {
  const own = argv.slice(0, argv.includes("--") ? argv.indexOf("--") : argv.length);
  const { why, code, message, details } = error;
  if (own.includes("--json")) complain(jsonLine({ error: why, code, message, ...details }));
  else if (!own.includes("--quiet") && !own.includes("-q")) say(message);
  if (why === "internal" && own.includes("--verbose"))
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
