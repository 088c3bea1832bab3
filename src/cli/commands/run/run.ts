/** `holdfast run KEY... -- COMMAND`: runs a command under a lock. The command never works without the lock. */

import { toReference } from "../../../client/transfer.ts";
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { createLabel } from "../../../os/process-label.ts";
import type { RunFile } from "../../../server/runs/run-file-writer.ts";
import { writeRunFile } from "../../../server/runs/run-file-writer.ts";
import { formatDuration } from "../../../util/duration.ts";
import { DEFAULT_LEASE_MS } from "../../acquire-flags.ts";
import { CommandError, toCommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { createSilenceError, openKeepSessionWithRetry, openStoreWithRetry, toTimeoutError } from "../../open-store.ts";
import type { Reporter } from "../../output.ts";
import { createReporter, quoteKeys } from "../../output.ts";
import type { SignalHandler } from "../../signals.ts";
import { catchSignals, InterruptedError } from "../../signals.ts";
import { resultWithin } from "../../timeout.ts";
import { acquireWithProgress } from "../../wait-reporter.ts";
import type { Child, ChildExit } from "./child.ts";
import { createChildEnvironment, hasTerminal, startChild, toExitCode } from "./child.ts";
import { checkExecutable } from "./executable.ts";
import type { InheritedLock } from "./inherited-locks.ts";
import { splitInherited } from "./inherited-locks.ts";
import { armWatchdog, monitorLease } from "./lease-monitor.ts";
import { signalNestedRuns, waitForNestedRuns } from "./nested-runs.ts";
import type { RunOptions } from "./options.ts";
import { checkGrace, defaultGraceMs } from "./options.ts";
import type { RunLock } from "./run-lock.ts";
import { checkCanOutlive, checkNotInherited, inheritedLock, ownLock } from "./run-lock.ts";
import type { Watchdog } from "./watchdog.ts";
import { startWatchdog } from "./watchdog.ts";

/** A store that does not answer must not delay the exit: the lock ends with the connection or the lease. */
const RELEASE_TIMEOUT_MS = 2_000;
/** With --hold-at-least the answer matters more, so this is long enough for a restart of the server. */
const DETACH_TIMEOUT_MS = 5_000;
/** A lost lock, or one of a store that does not answer, is released only if that is quick. */
const RELEASE_LOST_TIMEOUT_MS = 200;
/** How often a run is registered while servers start and end. */
const MAX_REGISTRATIONS = 10;
const NOTHING_RUN = "; nothing was run";

/**
 * Runs the command and gives the exit code: the command's own, or 128+n if signal n ended it.
 * @throws CommandError for everything else; InterruptedError if a signal ended `holdfast` before the command ran
 */
export async function runCommand(options: RunOptions): Promise<number> {
  const [program] = options.command;
  checkExecutable(program);
  const signals = catchSignals();
  const label = options.label ?? createLabel(program);
  const { maxHold } = options;
  const settings = { label, order: "strict" as const, ...(maxHold !== undefined && { maxHold }) };
  const startedAt = performance.now();
  const opening = openStoreWithRetry({ ...options, signal: signals.terminating }, settings);
  const store = await signals.orInterrupted(opening).catch(withNothingRun);
  const labelledOptions = { ...options, label, startedAt };
  let closeTimeoutMs = RELEASE_TIMEOUT_MS;
  try {
    const lock = await acquireLocks(store, labelledOptions, signals).catch(withNothingRun);
    lock.lostSignal.addEventListener("abort", () => {
      closeTimeoutMs = RELEASE_LOST_TIMEOUT_MS;
    });
    return await runUnderLock(store, lock, labelledOptions, signals);
  } catch (error) {
    // a store that has not answered until now does not answer the release of what was claimed either
    if (error instanceof CommandError && error.kind === "unreachable") closeTimeoutMs = RELEASE_LOST_TIMEOUT_MS;
    throw error;
  } finally {
    await resultWithin(closeTimeoutMs, store.locks.close());
  }
}

/** Options with the label and the start of the wait. */
type LabelledOptions = RunOptions & { readonly label: string; readonly startedAt: number };

/** The end of the wait by performance.now(); a single try may take as long as the first contact. */
function waitEndsAt({ startedAt, waitMs = Number.POSITIVE_INFINITY }: LabelledOptions): number {
  return startedAt + Math.max(waitMs, RELEASE_TIMEOUT_MS);
}

/** Adds "nothing was run" to an error: after a failed run this is the first question of users. */
function withNothingRun(error: unknown): never {
  if (!(error instanceof CommandError) || error.message.endsWith(NOTHING_RUN)) throw error;
  const { kind, code, message, details, cause } = error;
  throw new CommandError(kind, `${message}${NOTHING_RUN}`, { code, details, cause });
}

/** Acquires the keys that no outer run holds, and joins the outer runs for the others. */
async function acquireLocks(store: Store, options: LabelledOptions, signals: SignalHandler): Promise<RunLock> {
  const { locks, driver, traits } = store;
  if (options.holdAtLeast !== undefined) checkCanOutlive(store);
  const splitting = splitInherited(store, options.request, process.env);
  const split = await signals.orInterrupted(resultWithin(waitEndsAt(options) - performance.now(), splitting));
  if (split === undefined) throw toTimeoutError(createSilenceError(store.name), options.waitMs as number);
  const { inherited, toClaim } = split;
  const [key, ...keys] = toClaim;
  const [firstInherited, ...otherInherited] = inherited;
  const inheritedKeys = inherited.map((lock: InheritedLock) => lock.key);
  if (options.holdAtLeast !== undefined) checkNotInherited(inheritedKeys);
  const acquired = key === undefined ? null : await acquireOwn();
  if (firstInherited === undefined) return acquired as RunLock;
  createReporter(options).debug(`joined ${quoteKeys(inheritedKeys)}, held by an outer run`);
  const lock = inheritedLock(acquired, [firstInherited, ...otherInherited], driver);
  if (options.graceMs !== undefined && lock.leaseMs !== null) checkGrace(options.graceMs, lock.leaseMs);
  return lock;

  async function acquireOwn(): Promise<RunLock> {
    const { lease, fencing } = traits;
    const isSessionDefault = lease.endsWithConnection === true || !lease.claim;
    // a lock that outlives this process cannot belong to its session, and detaching cannot extend the lease
    const minTtlMs = options.holdAtLeast === undefined ? null : Math.max(options.holdAtLeast, DEFAULT_LEASE_MS);
    const ttl = options.ttl ?? minTtlMs ?? (isSessionDefault ? "session" : DEFAULT_LEASE_MS);
    const leaseMs = ttl !== "session" ? ttl : lease.endsWithConnection === true ? null : (lease.sessionMs ?? null);
    if (options.graceMs !== undefined && leaseMs !== null) checkGrace(options.graceMs, leaseMs);
    const request = { keys: [key as string, ...keys] as const, mode: options.request.mode };
    const lock = await acquireWithProgress(store, request, { ...options, ttl, signal: signals.terminating });
    return ownLock(locks, lock, { reference: toReference(lock), fencing, leaseMs });
  }
}

/**
 * Runs the command. Before it does anything, the run file exists, so that a restarted server can restore its locks, and the
 * watchdog guards it.
 */
async function runUnderLock(
  store: Store,
  lock: RunLock,
  options: LabelledOptions,
  signals: SignalHandler,
): Promise<number> {
  const { onLost, holdAtLeast } = options;
  const reporter = createReporter(options);
  const graceMs = options.graceMs ?? defaultGraceMs(lock.leaseMs);
  const hasTty = hasTerminal();
  let runFile: RunFile | null = null;
  let watchdog: Watchdog | null = null;
  let child: Child;
  try {
    if (signals.terminating.aborted) throw signals.terminating.reason;
    const run = await registerRun(store, lock, options, signals);
    const { keepSession } = run;
    runFile = run.runFile;
    if (onLost !== "ignore") {
      watchdog = await startWatchdog({
        hasOwnGroup: !hasTty,
        graceMs: onLost === "kill" ? 0 : graceMs,
        token: String(lock.token ?? ""),
        keepSessionSocket: keepSession?.socket ?? null,
        reopenKeepSession: () => openKeepSessionSocket(store.driver),
        runFile,
      });
    }
    armWatchdog(watchdog, lock, onLost === "term" ? graceMs : 0);
    child = await startChild(options.command, {
      env: createChildEnvironment(process.env, lock, options.url),
      hasOwnGroup: !hasTty,
      keepSessionSocket: keepSession?.socket ?? null,
      runFile,
    });
  } catch (error) {
    await watchdog?.dismiss();
    runFile?.remove();
    await resultWithin(RELEASE_TIMEOUT_MS, lock.release());
    throw error;
  }
  watchdog?.watch(child.pid);
  signals.forwardTo({ terminal: hasTty, send: (name) => forwardSignal(name, child, watchdog) });
  reporter.debug(`holding ${quoteKeys(lock.keys)}: started ${child.pid}`);
  // a lost lock must not be restored by the next start of the server while the command works without it
  lock.lostSignal.addEventListener("abort", () => onLost === "ignore" && runFile?.remove(), { once: true });
  const outcome = await monitorLease({ lock, child, watchdog, onLost, graceMs, reporter });
  const { ownReference } = lock;
  if (ownReference !== null) {
    signals.forwardTo({ terminal: hasTty, send: (name) => signalNestedRuns(ownReference, name) });
    await waitForNestedRuns(ownReference, () => reportNestedEnd(lock, reporter));
  }
  if (runFile?.isKeptByServer !== true) runFile?.remove();
  const { wasHeld, isConfirmed } = await releaseLock(lock, holdAtLeast, reporter);
  // without a confirmation the file stays: the next start of the server reads in it how long to keep the lock
  if (isConfirmed) runFile?.remove();
  if (outcome.failure !== null) throw outcome.failure;
  if (!wasHeld && onLost !== "ignore") throw createLostError(lock, outcome.exit);
  return exitLikeChild(outcome.exit, child);
}

/**
 * Opens the connection that keeps the session, and writes the run file: again, if the server has ended meanwhile. It closes the
 * connection, and a closed one can be given neither to the watchdog nor to the command. No input arrives between the
 * return and their start.
 * @throws CommandError
 */
async function registerRun(
  store: Store,
  { ownReference }: RunLock,
  options: LabelledOptions,
  { terminating }: SignalHandler,
): Promise<{ readonly keepSession: KeepSessionSocket | null; readonly runFile: RunFile | null }> {
  for (let attempt = 0; attempt < MAX_REGISTRATIONS; attempt++) {
    const keepSession = await openKeepSessionWithRetry(store, waitEndsAt(options), terminating);
    const runFile = await createRunFile(keepSession, ownReference, options).catch(withNothingRun);
    if (keepSession?.socket.destroyed !== true) return { keepSession, runFile };
    runFile?.remove();
  }
  throw new CommandError("unreachable", `${store.name}: it has ended ${MAX_REGISTRATIONS} times${NOTHING_RUN}`);
}

/** Null if the server does not restore runs. @throws CommandError output */
async function createRunFile(
  keepSession: KeepSessionSocket | null,
  reference: string | null,
  { label, holdAtLeast: minHoldMs = 0 }: LabelledOptions,
): Promise<RunFile | null> {
  if (keepSession === null || keepSession.runDirectory === null || reference === null) return null;
  const { runDirectory, sessionId: session } = keepSession;
  return writeRunFile(runDirectory, { session, label, reference, minHoldMs }).catch((error: unknown) => {
    throw toCommandError(error, "the server");
  });
}

/** Sends a signal to the command and the processes below it. A watchdog that was killed cannot find those any more. */
function forwardSignal(name: NodeJS.Signals, child: Child, watchdog: Watchdog | null): void {
  if (watchdog?.isAlive === true) watchdog.forwardSignal(name, () => child.signal(name));
  else child.signal(name);
}

function reportNestedEnd({ keys }: RunLock, reporter: Reporter): void {
  reporter.info(`keeping ${quoteKeys(keys)}: a run inside this one was killed, and its command has not ended yet`);
}

/**
 * Releases the lock, or leaves it held for the rest of `minHoldMs`.
 * `wasHeld`: the lock was held until now. A missing answer is not a loss: by our own clock the lease was valid.
 * `isConfirmed`: false if the lock is meant to stay held and the store has not confirmed that.
 */
async function releaseLock(
  lock: RunLock,
  minHoldMs: number | undefined,
  reporter: Reporter,
): Promise<{ readonly wasHeld: boolean; readonly isConfirmed: boolean }> {
  const isLost = lock.lostSignal.aborted;
  if (isLost || minHoldMs === undefined) {
    return {
      wasHeld: (await resultWithin(isLost ? RELEASE_LOST_TIMEOUT_MS : RELEASE_TIMEOUT_MS, lock.release())) ?? !isLost,
      isConfirmed: true,
    };
  }
  const releasing = lock.release(minHoldMs).then(
    (wasHeld) => ({ wasHeld, problem: null }),
    (error: Error) => ({ wasHeld: true, problem: error.message }),
  );
  const { wasHeld, problem } = (await resultWithin(DETACH_TIMEOUT_MS, releasing)) ?? {
    wasHeld: true,
    problem: "the store did not answer in time",
  };
  if (problem !== null)
    reporter.info(`${quoteKeys(lock.keys)} may be free before ${formatDuration(minHoldMs)} have passed: ${problem}`);
  return { wasHeld, isConfirmed: problem === null };
}

function createLostError(lock: RunLock, { code, signal }: ChildExit): CommandError {
  const reason = (lock.lostSignal.reason as { readonly reason?: string } | undefined)?.reason ?? "unknown";
  const ending = signal === null ? `had exited with ${code}` : `was ended by ${signal}`;
  return new CommandError("lost", `lost ${quoteKeys(lock.keys)} (${reason}) before the command ended; it ${ending}`, {
    details: { reason, command: { code, signal } },
  });
}

/** Ctrl-C stops a shell loop around `holdfast` only if the signal ends `holdfast` itself, too. */
function exitLikeChild(exit: ChildExit, { hasOwnGroup }: Child): number {
  if (!hasOwnGroup && exit.signal === "SIGINT") throw new InterruptedError("SIGINT");
  return toExitCode(exit);
}
