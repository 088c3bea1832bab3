/**
 * `holdfast run KEY... -- COMMAND`: runs a command under a lock. The command never works without the lock.
 *
 * The processes of a run, and who guards whom:
 *   wrapper     this process. Holds the lock (run-lock.ts), and ends the command before the lock can be lost
 *               (lease-monitor.ts)
 *   command     works under the lock (running-command.ts). Inherits the connection that keeps the session, and the
 *               lock of the run file
 *   watchdog    ends the command when the wrapper is dead, or stopped until the end of the lease (watchdog.ts,
 *               watchdog.sh). guarded-command.ts is what the wrapper does with command and watchdog
 *   server      on a Unix socket: keeps the lock while the run file names a process at work (server/runs/)
 *   outer run   a run whose command has started this one. This one may join its lock (outer-locks.ts), and learns of
 *               the end of it (outer-lock-monitor.ts). The outer run keeps its lock while a killed run inside it is at
 *               work (nested-runs.ts)
 *
 * What the death of a process does:
 *   command             the wrapper ends the watchdog, removes the run file and releases the lock
 *   wrapper             the watchdog ends the command, and removes the file. Until then the server renews the leases
 *   watchdog            nothing: the wrapper goes on, and sends its signals to the process group of the command
 *   wrapper, watchdog   no process ends the command. Until it has ended, the server keeps the lock, and an outer run
 *                       its own; on a network store the lease ends
 *   server              nothing; its next start restores the claims, and the wrapper starts another watchdog
 *   outer run           a lock that was joined ends: a loss like any other
 *   the machine         all processes have ended: the run is over, but for the rest of --hold-at-least
 *   a server that dies together with the others delays what it does itself until its next start
 *
 * A run is begun by startRun(), and ended by endRun() alone.
 */

import { toReference } from "../../../client/transfer.ts";
import type { KeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../../../drivers/server/keep-session.ts";
import { createLabel } from "../../../os/process-label.ts";
import type { RunFile } from "../../../server/runs/run-file-writer.ts";
import { writeRunFile } from "../../../server/runs/run-file-writer.ts";
import { formatDuration } from "../../../util/duration.ts";
import { DEFAULT_LEASE_MS } from "../../acquire-flags.ts";
import { CommandError, createSilenceError, toCommandError } from "../../errors.ts";
import type { Store } from "../../open-store.ts";
import { openKeepSessionWithRetry, openStoreWithRetry, toTimeoutError } from "../../open-store.ts";
import type { Reporter } from "../../output.ts";
import { createReporter, quoteKeys } from "../../output.ts";
import type { SignalHandler } from "../../signals.ts";
import { catchSignals, InterruptedError } from "../../signals.ts";
import { resultWithin } from "../../timeout.ts";
import { acquireWithProgress } from "../../wait-reporter.ts";
import { checkExecutable } from "./executable.ts";
import type { GuardedCommand } from "./guarded-command.ts";
import { startGuardedCommand } from "./guarded-command.ts";
import type { RunOutcome } from "./lease-monitor.ts";
import { monitorLease, watchdogDeadlineMs } from "./lease-monitor.ts";
import { signalNestedRuns, waitForNestedRuns } from "./nested-runs.ts";
import type { RunOptions } from "./options.ts";
import { checkGrace, defaultGraceMs } from "./options.ts";
import { findOuterLocks } from "./outer-locks.ts";
import type { RunLock } from "./run-lock.ts";
import { checkAllOwn, checkCanOutlive, joinedLock, ownLock } from "./run-lock.ts";
import type { CommandExit } from "./running-command.ts";
import { createCommandEnvironment, hasTerminal, toExitCode } from "./running-command.ts";

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
    return await runUnderLock({ store, lock, options: labelledOptions, signals, reporter: createReporter(options) });
  } catch (error) {
    // a store that has not answered until now does not answer the release of what was claimed either
    if (error instanceof CommandError && error.kind === "unreachable") closeTimeoutMs = RELEASE_LOST_TIMEOUT_MS;
    throw error;
  } finally {
    await resultWithin(closeTimeoutMs, store.close());
  }
}

/** Options with the label and the start of the wait. */
type LabelledOptions = RunOptions & { readonly label: string; readonly startedAt: number };

/** A run that has its lock. */
interface Run {
  readonly store: Store;
  readonly lock: RunLock;
  readonly options: LabelledOptions;
  readonly signals: SignalHandler;
  readonly reporter: Reporter;
}

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
  const splitting = findOuterLocks(store, options.request, process.env);
  const split = await signals.orInterrupted(resultWithin(waitEndsAt(options) - performance.now(), splitting));
  if (split === undefined) throw toTimeoutError(createSilenceError(store.name), options.waitMs as number);
  const { outerLocks, toClaim } = split;
  const [key, ...keys] = toClaim;
  const [firstOuter, ...otherOuter] = outerLocks;
  const outerKeys = outerLocks.map((lock) => lock.key);
  if (options.holdAtLeast !== undefined) checkAllOwn(outerKeys);
  const acquired = key === undefined ? null : await acquireOwn();
  if (firstOuter === undefined) return acquired as RunLock;
  createReporter(options).debug(`joined ${quoteKeys(outerKeys)}, held by an outer run`);
  const lock = joinedLock(acquired, [firstOuter, ...otherOuter], driver);
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

async function runUnderLock(run: Run): Promise<number> {
  const { lock, options, signals, reporter } = run;
  const { onLost } = options;
  // from TERM to KILL; without TERM there is none
  const graceMs = onLost === "kill" ? 0 : (options.graceMs ?? defaultGraceMs(lock.leaseMs));
  const { command, runFile } = await startRun(run, graceMs);
  signals.forwardTo({ terminal: !command.hasOwnGroup, send: (name) => command.signal(name) });
  reporter.debug(`holding ${quoteKeys(lock.keys)}: started ${command.pid}`);
  // a lost lock must not be restored by the next start of the server while the command works without it
  lock.lostSignal.addEventListener("abort", () => onLost === "ignore" && runFile?.remove(), { once: true });
  const outcome = await monitorLease({ lock, command, onLost, graceMs, reporter });
  return endRun(run, { command, runFile, outcome });
}

/**
 * Starts the command. Before it does anything, the run file exists, so that a restarted server can restore its locks,
 * and the watchdog guards it.
 * @throws CommandError, after releasing the lock
 */
async function startRun(
  run: Run,
  graceMs: number,
): Promise<{ readonly command: GuardedCommand; readonly runFile: RunFile | null }> {
  const { store, lock, options, signals } = run;
  let runFile: RunFile | null = null;
  try {
    if (signals.terminating.aborted) throw signals.terminating.reason;
    const registered = await registerRun(run);
    runFile = registered.runFile;
    const command = await startGuardedCommand({
      command: options.command,
      env: createCommandEnvironment(process.env, lock, options),
      hasOwnGroup: !hasTerminal(),
      keepSessionSocket: registered.keepSession?.socket ?? null,
      runFile,
      guard:
        options.onLost === "ignore"
          ? null
          : {
              graceMs,
              token: String(lock.token ?? ""),
              deadlineMs: () => watchdogDeadlineMs(lock, graceMs),
              reopenKeepSession: () => openKeepSessionSocket(store.driver),
            },
    });
    return { command, runFile };
  } catch (error) {
    runFile?.remove();
    await resultWithin(RELEASE_TIMEOUT_MS, lock.release());
    throw error;
  }
}

/**
 * Ends a run whose command has ended: waits for killed runs inside it, removes the run file, releases the lock, and
 * gives the exit code. A file that the server keeps for --hold-at-least is removed last.
 * @throws CommandError if the lock was lost
 */
async function endRun(
  { lock, options, signals, reporter }: Run,
  ended: { readonly command: GuardedCommand; readonly runFile: RunFile | null; readonly outcome: RunOutcome },
): Promise<number> {
  const { command, runFile, outcome } = ended;
  const { ownReference } = lock;
  if (ownReference !== null) {
    signals.forwardTo({ terminal: !command.hasOwnGroup, send: (name) => signalNestedRuns(ownReference, name) });
    await waitForNestedRuns(ownReference, () => reportNestedEnd(lock, reporter));
  }
  if (runFile?.isKeptByServer !== true) runFile?.remove();
  const { wasHeld, isConfirmed } = await releaseLock(lock, options.holdAtLeast, reporter);
  // without a confirmation the file stays: the next start of the server reads in it how long to keep the lock
  if (isConfirmed) runFile?.remove();
  if (outcome.failure !== null) throw outcome.failure;
  if (!wasHeld && options.onLost !== "ignore") throw createLostError(lock, outcome.exit);
  return exitLikeCommand(outcome.exit, command);
}

/**
 * Opens the connection that keeps the session, and writes the run file: again, if the server has ended meanwhile. It
 * closes the connection, and a closed one can be given neither to the watchdog nor to the command. No input arrives
 * between the return and their start.
 * @throws CommandError
 */
async function registerRun({
  store,
  lock,
  options,
  signals,
}: Run): Promise<{ readonly keepSession: KeepSessionSocket | null; readonly runFile: RunFile | null }> {
  for (let attempt = 0; attempt < MAX_REGISTRATIONS; attempt++) {
    const keepSession = await openKeepSessionWithRetry(store, waitEndsAt(options), signals.terminating);
    const runFile = await createRunFile(keepSession, lock.ownReference, options).catch(withNothingRun);
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

function createLostError(lock: RunLock, { code, signal }: CommandExit): CommandError {
  const reason = (lock.lostSignal.reason as { readonly reason?: string } | undefined)?.reason ?? "unknown";
  const ending = signal === null ? `had exited with ${code}` : `was ended by ${signal}`;
  return new CommandError("lost", `lost ${quoteKeys(lock.keys)} (${reason}) before the command ended; it ${ending}`, {
    details: { reason, command: { code, signal } },
  });
}

/** Ctrl-C stops a shell loop around `holdfast` only if the signal ends `holdfast` itself, too. */
function exitLikeCommand(exit: CommandExit, { hasOwnGroup }: GuardedCommand): number {
  if (!hasOwnGroup && exit.signal === "SIGINT") throw new InterruptedError("SIGINT");
  return toExitCode(exit);
}
