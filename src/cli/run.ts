/** `holdfast run KEY... -- CMD`: a command under a lock, which it never works without. */

import { referenceOf } from "../client/detach.ts";
import { shownDuration } from "../duration.ts";
import type { Child, Ended } from "./child.ts";
import { exitCodeOf, hasTerminal, startChild } from "./child.ts";
import { childEnvironment } from "./environment.ts";
import { CommandError } from "./failure.ts";
import type { Guard } from "./guard.ts";
import type { Held } from "./held.ts";
import { joinedHold, ownHold } from "./held.ts";
import { checkOutlives, checkOwn } from "./hold-at-least.ts";
import type { Joined } from "./nested.ts";
import { sortOut } from "./nested.ts";
import { quotedList } from "./output.ts";
import { checkProgram } from "./program.ts";
import { reach } from "./reach.ts";
import type { ReliefOptions } from "./relief.ts";
import { guardWithRelief } from "./relief.ts";
import type { RunFile } from "./run-file.ts";
import { writeRunFile } from "./run-file.ts";
import type { RunOptions } from "./run-options.ts";
import { checkGrace } from "./run-options.ts";
import type { Signals } from "./signals.ts";
import { catchSignals, InterruptedError } from "./signals.ts";
import type { Store } from "./store.ts";
import { tetherOf } from "./store.ts";
import type { Supervision } from "./supervise.ts";
import { arm, lostError, supervise } from "./supervise.ts";
import type { Voice } from "./voice.ts";
import { voiceOf } from "./voice.ts";
import { acquireInWords } from "./waiting.ts";
import { labelFor } from "./wanted.ts";

/** A store that does not answer must not keep us: what we held ends with our connection or its lease. */
const LEAVE_MS = 2_000;
/** With --hold-at-least more depends on the answer: a server that is just being started again is waited for. */
const LEAVE_HELD_MS = 5_000;
/** What is lost anyway is given back if that is quickly done. */
const LEAVE_LOST_MS = 200;
const DEFAULT_LEASE_MS = 30_000;
const NOTHING_RUN = "; nothing was run";

/**
 * Runs the command and gives our exit code: its own, or 128+n if signal n ended it.
 * @throws CommandError for everything else; InterruptedError if a signal ended us before it ran
 */
export async function run(options: RunOptions): Promise<number> {
  const [program] = options.command;
  checkProgram(program);
  const signals = catchSignals();
  const label = options.label ?? labelFor(program);
  const { maxHold } = options;
  const settings = { label, handoffs: 1, ...(maxHold !== undefined && { maxHold }) };
  const startedAt = performance.now();
  const reaching = reach({ ...options, signal: signals.ending }, settings);
  const store = await signals.orInterrupted(reaching).catch(nothingRun);
  const labelled = { ...options, label, startedAt };
  let held: Held | undefined;
  try {
    held = await hold(store, labelled, signals).catch(nothingRun);
    return await runHeld(store, held, labelled, signals);
  } finally {
    await atMost(store.locks.close(), held?.lost.aborted === true ? LEAVE_LOST_MS : LEAVE_MS);
  }
}

/** Its label is decided. */
type Labelled = RunOptions & { readonly label: string; readonly startedAt: number };

/** What people ask first of all when a run failed. */
function nothingRun(error: unknown): never {
  if (!(error instanceof CommandError) || error.message.endsWith(NOTHING_RUN)) throw error;
  const { why, code, message, details, cause } = error;
  throw new CommandError(why, `${message}${NOTHING_RUN}`, { code, details, cause });
}

/** Takes what no outer run holds for us. */
async function hold(store: Store, options: Labelled, signals: Signals): Promise<Held> {
  const { locks, driver } = store;
  if (options.holdAtLeast !== undefined) checkOutlives(store);
  const { joined, rest } = await signals.orInterrupted(sortOut(locks, options.wanted, process.env));
  const [key, ...keys] = rest;
  const [first, ...others] = joined;
  if (options.holdAtLeast !== undefined) checkOwn(joined.map((one: Joined) => one.key));
  const own = key === undefined ? null : await acquireOwn();
  if (first === undefined) return own as Held;
  voiceOf(options).detail(
    `joined ${quotedList(joined.map((one: Joined) => one.key))}, held by the run around this one`,
  );
  const held = joinedHold(own, [first, ...others], driver);
  if (options.graceMs !== undefined && held.leaseMs !== null) checkGrace(options.graceMs, held.leaseMs);
  return held;

  async function acquireOwn(): Promise<Held> {
    const { lease, fencing } = driver.traits;
    const bySession = lease.silenceKeeps === true || !lease.claim;
    // what shall outlive us cannot be the session's, and no lease can be left longer than it is
    const atLeast = options.holdAtLeast === undefined ? null : Math.max(options.holdAtLeast, DEFAULT_LEASE_MS);
    const ttl = options.ttl ?? atLeast ?? (bySession ? "session" : DEFAULT_LEASE_MS);
    const leaseMs = ttl !== "session" ? ttl : lease.silenceKeeps === true ? null : (lease.sessionMs ?? null);
    if (options.graceMs !== undefined && leaseMs !== null) checkGrace(options.graceMs, leaseMs);
    const wanted = { keys: [key as string, ...keys] as const, mode: options.wanted.mode };
    const lock = await acquireInWords(store, wanted, { ...options, ttl, signal: signals.ending });
    return ownHold(lock, { reference: referenceOf(lock), fencing, leaseMs });
  }
}

async function runHeld(store: Store, held: Held, options: Labelled, signals: Signals): Promise<number> {
  const voice = voiceOf(options);
  let work: Work;
  try {
    if (signals.ending.aborted) throw signals.ending.reason;
    work = await begin(store, held, options, signals, voice);
  } catch (error) {
    await atMost(held.release(), LEAVE_MS);
    throw error;
  }
  const { child, guard, file, supervision } = work;
  const ended = await child.ended;
  await Promise.all([supervision.stop(), supervision.failure === null ? guard.free() : undefined]);
  if (file?.outlived !== true) file?.remove();
  const { kept, sure } = await giveBack(held, options.holdAtLeast, voice);
  // else a server that did not answer finds there for how long it is to be held
  if (sure) file?.remove();
  if (supervision.failure !== null) throw supervision.failure;
  if (!kept && options.onLost !== "ignore") throw lostBefore(held, ended);
  return interruptedOr(ended, child);
}

/**
 * kept: was it ours until now? An answer that does not come is no loss: our own clock says that we held it.
 * sure: false if it is to stay held, and it is not known whether it does.
 */
async function giveBack(
  held: Held,
  atLeastMs: number | undefined,
  voice: Voice,
): Promise<{ readonly kept: boolean; readonly sure: boolean }> {
  const isLost = held.lost.aborted;
  if (isLost || atLeastMs === undefined) {
    return { kept: (await atMost(held.release(), isLost ? LEAVE_LOST_MS : LEAVE_MS)) ?? !isLost, sure: true };
  }
  const done = held.release(atLeastMs).then(
    (kept) => ({ kept, why: null }),
    (error: Error) => ({ kept: true, why: error.message }),
  );
  const { kept, why } = (await atMost(done, LEAVE_HELD_MS)) ?? { kept: true, why: "the store did not answer in time" };
  if (why !== null)
    voice.tell(`${quotedList(held.keys)} may be free before ${shownDuration(atLeastMs)} are over: ${why}`);
  return { kept, sure: why === null };
}

interface Work {
  readonly child: Child;
  readonly guard: Pick<Guard, "free">;
  /** What it has written down, where its server restores that. */
  readonly file: RunFile | null;
  readonly supervision: Supervision;
}

/**
 * Writes down what is held, starts guard, child and watch, in this order: before the child does anything it is guarded,
 * and a server that is started anew knows of it.
 */
async function begin(store: Store, held: Held, options: Labelled, signals: Signals, voice: Voice): Promise<Work> {
  const terminal = hasTerminal();
  const graceMs = options.graceMs ?? defaultGrace(held.leaseMs);
  const tether = await tetherOf(store);
  const file = await writeRunFile(tether, held.ownReference, options.label, options.holdAtLeast).catch(nothingRun);
  let guard: Guard | null = null;
  let child: Child;
  try {
    guard = options.onLost === "ignore" ? null : await guardWithRelief(guarding());
    arm(guard, held, options.onLost === "term" ? graceMs : 0);
    child = await startChild(options.command, {
      env: childEnvironment(process.env, held, options.url),
      ownGroup: !terminal,
      inherits: [...(tether === null ? [] : [tether.socket]), ...(file === null ? [] : [file.descriptor])],
      started: (pid) => file?.add("command", pid),
    });
  } catch (error) {
    await guard?.free();
    file?.remove();
    throw error;
  }
  guard?.child(child.pid);
  // what is lost must not come back with the next server, whatever the command does without it
  held.lost.addEventListener("abort", () => options.onLost === "ignore" && file?.remove(), { once: true });
  signals.passTo({ terminal, send: (name) => (guard === null ? child.signal(name) : guard.signal(name)) });
  voice.detail(`holding ${quotedList(held.keys)}: started ${child.pid}`);
  const supervision = supervise({ held, child, guard, onLost: options.onLost, graceMs, voice });
  return { child, guard: guard ?? { free: async () => undefined }, file, supervision };

  function guarding(): ReliefOptions {
    const { driver } = store;
    const token = String(held.token ?? "");
    const killMs = options.onLost === "kill" ? 0 : graceMs;
    return { driver, tether: tether?.socket ?? null, file, ownGroup: !terminal, graceMs: killMs, token };
  }
}

/** Half of the lease is the most that can be kept; a quarter leaves room for a late renewal. */
function defaultGrace(leaseMs: number | null): number {
  return leaseMs === null ? 5_000 : Math.min(5_000, leaseMs / 4);
}

function lostBefore(held: Held, { code, signal }: Ended): CommandError {
  const reason = (held.lost.reason as { readonly reason?: string } | undefined)?.reason ?? "unknown";
  const how = signal === null ? `had exited with ${code}` : `was ended by ${signal}`;
  const { details } = lostError(held, "unknown");
  return new CommandError("lost", `lost ${quotedList(held.keys)} (${reason}) before the command ended; it ${how}`, {
    details: { ...details, reason, command: { code, signal } },
  });
}

/** A shell that ran us in a loop stops on Ctrl-C only if the signal ended us, too. */
function interruptedOr(ended: Ended, { ownGroup }: Child): number {
  if (!ownGroup && ended.signal === "SIGINT") throw new InterruptedError("SIGINT");
  return exitCodeOf(ended);
}

/** The result, or undefined when it takes too long. */
function atMost<T>(work: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
