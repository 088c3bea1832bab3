/**
 * `holdfast acquire`, `renew`, `release` and `check`: pass a lock from one process to another as a reference. Each
 * refusal has a reason, and the exit code of a lost lock.
 */

import { readSync } from "node:fs";
import { isatty } from "node:tty";
import { LOSS_TEXTS } from "../../errors.ts";
import { createLabel } from "../../os/process-label.ts";
import type { DetachedClaim } from "../../protocol/lock-reference.ts";
import { decodeReference } from "../../protocol/lock-reference.ts";
import { formatDuration } from "../../util/duration.ts";
import type { AcquireFlags } from "../acquire-flags.ts";
import { DEFAULT_LEASE_MS, parseConflictExitCode, parseTtl, parseWait } from "../acquire-flags.ts";
import { CommandError, toCommandError } from "../errors.ts";
import { parseLockRequest } from "../lock-request.ts";
import type { Store } from "../open-store.ts";
import { openStore, openStoreWithRetry } from "../open-store.ts";
import { createReporter, formatJsonLine, printLine, printRequired, quoteKeys } from "../output.ts";
import { findHeld, REFERENCE_VARIABLE } from "../references.ts";
import { catchSignals, InterruptedError } from "../signals.ts";
import type { StoreFlags } from "../store-choice.ts";
import { acquireWithProgress } from "../wait-reporter.ts";

/** Flags of the commands that take a reference. */
export interface ReferenceFlags extends StoreFlags {
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** The longest possible reference is far shorter. */
const MAX_STDIN_BYTES = 262_144;

/**
 * Acquires the lock, detaches it and prints the reference. From then on only `holdfast renew` renews the lease.
 * @throws CommandError as acquireWithProgress()
 */
export async function acquireCommand(keys: readonly string[], flags: AcquireFlags): Promise<number> {
  const request = parseLockRequest(keys, flags.shared === true, flags.permits);
  const ttl = flags.ttl === undefined ? DEFAULT_LEASE_MS : parseTtl(flags.ttl);
  if (ttl === "session") {
    throw new CommandError("usage", "--ttl must be a duration here: a session would end with `holdfast acquire`");
  }
  const signals = catchSignals();
  // the pid of the calling script: this process ends in a moment
  const label = flags.label ?? createLabel("holdfast acquire", process.ppid);
  const waitMs = parseWait(flags);
  const conflictExitCode = parseConflictExitCode(flags.conflictExitCode);
  const startedAt = performance.now();
  const opening = openStoreWithRetry({ ...flags, waitMs, signal: signals.terminating }, { order: "strict" });
  return withStore(signals.orInterrupted(opening), async (store) => {
    if (store.traits.durability === "process") {
      throw new CommandError(
        "usage",
        `${store.name} ends with \`holdfast acquire\`, and so would the lock: use another store`,
      );
    }
    if (!store.traits.lease.claim) {
      throw new CommandError(
        "usage",
        `${store.name} keeps a lock only as long as the session of its client, so a reference cannot carry it; use \`holdfast run KEY -- COMMAND\``,
      );
    }
    const options = {
      ...reporterFlags(flags),
      conflictExitCode,
      waitMs,
      startedAt,
      ttl,
      label,
      signal: signals.terminating,
    };
    const lock = await acquireWithProgress(store, request, options);
    const token = store.traits.fencing ? lock.token : null;
    const reference = await lock.detach();
    try {
      printRequired(
        flags.json === true ? formatJsonLine({ reference, keys: lock.keys, token, ttlMs: ttl }) : reference,
      );
    } catch (error) {
      // the reference is lost, so no other process can release the lock
      await (await store.locks.attach(reference)).release();
      throw new CommandError("output", `${(error as Error).message}; ${quoteKeys(lock.keys)} was released`, {
        cause: error,
      });
    }
    createReporter(flags).debug(
      `${quoteKeys(lock.keys)} is held for ${formatDuration(ttl)}, unless it is renewed or released`,
    );
    return 0;
  });
}

/** Renews the lease of a reference. @throws CommandError lost (123) with the reason */
export async function renewCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { text, parts } = readReferenceArgument(argument);
  return withStore(openReferenceStore(flags), async (store) => {
    const [first] = parts as readonly [DetachedClaim];
    if (first.claim.ttlMs === "session") {
      // the session of its run keeps it: attaching it here would end it with this process
      return printStatus(store, parts, flags, "belongs to the session of a run and needs no renewal");
    }
    const lock = await store.locks.attach(text).catch((error: unknown) => rejectAttach(error, parts, store));
    await lock.detach();
    const { keys } = lock;
    if (flags.json === true) printLine(formatJsonLine({ renewed: true, keys, ttlMs: first.claim.ttlMs }));
    else
      createReporter(flags).info(`renewed ${quoteKeys(keys)}: held for another ${formatDuration(first.claim.ttlMs)}`);
    return 0;
  });
}

/** Releases a lock by its reference. @throws CommandError lost (123) with the reason */
export async function releaseCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { text, parts } = readReferenceArgument(argument);
  return withStore(openReferenceStore(flags), async (store) => {
    const lock = await store.locks.attach(text).catch((error: unknown) => releaseRevoked(error, parts, store));
    if (!(await lock.release())) throw notHeldError(parts, "unknown");
    if (flags.json === true) printLine(formatJsonLine({ released: true, keys: lock.keys }));
    else createReporter(flags).info(`released ${quoteKeys(lock.keys)}`);
    return 0;
  });
}

/**
 * Releases a revoked claim. It keeps its entry in the queue until it is released, and only the reference permits that.
 * @throws CommandError lost (123) in any case: the lock was not held any more
 */
async function releaseRevoked(error: unknown, parts: readonly DetachedClaim[], store: Store): Promise<never> {
  const { code, reason = "unknown" } = error as { readonly code?: unknown; readonly reason?: string };
  if (code !== "LOCK_LOST" || (reason !== "revoked" && reason !== "maxHold")) rejectAttach(error, parts, store);
  await store.driver
    .release(parts.map(({ claim }) => ({ claim, hasUnansweredClaim: false })))
    .catch((failure: unknown) => {
      throw toCommandError(failure, store.name);
    });
  const keys = listKeys(parts);
  throw new CommandError("lost", `released ${quoteKeys(keys)}, but it was not held any more: ${LOSS_TEXTS[reason]}`, {
    details: { reason, keys },
    cause: error,
  });
}

/**
 * Checks whether the lock of a reference is still held; changes nothing. @throws CommandError lost (123) with the
 * reason
 */
export async function checkCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { parts } = readReferenceArgument(argument);
  return withStore(openReferenceStore(flags), (store) => printStatus(store, parts, flags, null));
}

async function printStatus(
  store: Store,
  parts: readonly DetachedClaim[],
  flags: ReferenceFlags,
  statusText: string | null,
): Promise<number> {
  let remainingMs = Number.POSITIVE_INFINITY;
  for (const part of parts) {
    const info = await findHeld(store, part, part.claim.locks[0].key);
    if (info === null) {
      // the claim is not listed, so this renewal cannot extend it: it only returns the reason of its end
      const [answer] = await store.driver.renew([part.claim]);
      throw notHeldError(parts, (answer?.state === "none" ? answer.reason : undefined) ?? "unknown");
    }
    remainingMs = Math.min(remainingMs, info.remainingMs ?? remainingMs);
  }
  const keys = listKeys(parts);
  const isUnlimited = remainingMs === Number.POSITIVE_INFINITY;
  const token = parts.reduce((highest, part) => (part.token > highest ? part.token : highest), 0n);
  if (flags.json === true) {
    printLine(formatJsonLine({ held: true, keys, token, remainingMs: isUnlimited ? null : Math.floor(remainingMs) }));
  } else {
    const remaining = isUnlimited ? "until its session ends" : `for another ${formatDuration(remainingMs)}`;
    createReporter(flags).info(`${quoteKeys(keys)} ${statusText ?? `is held ${remaining}, token ${token}`}`);
  }
  return 0;
}

function rejectAttach(error: unknown, parts: readonly DetachedClaim[], { name }: Store): never {
  const { code, reason } = error as { readonly code?: unknown; readonly reason?: string };
  if (code === "LOCK_LOST") throw notHeldError(parts, reason ?? "unknown", error);
  throw toCommandError(error, name);
}

/** Of a reference the store may know nothing for several reasons. */
const REFERENCE_LOSS_TEXTS: Readonly<Record<string, string>> = {
  ...LOSS_TEXTS,
  unknown: "the store does not know it: it was released, its lease ended long ago, or it belongs to another store",
};

function notHeldError(parts: readonly DetachedClaim[], reason: string, cause?: unknown): CommandError {
  const keys = listKeys(parts);
  const lossText = REFERENCE_LOSS_TEXTS[reason] ?? reason;
  return new CommandError(
    "lost",
    `${quoteKeys(keys)} is not held by this reference: ${lossText}; nothing was changed`,
    {
      details: { reason, keys },
      cause,
    },
  );
}

function listKeys(parts: readonly DetachedClaim[]): string[] {
  return parts.flatMap(({ claim }) => claim.locks.map(({ key }) => key)).sort();
}

/**
 * Reads the reference from the argument, else from HOLDFAST_REFERENCE, else from standard input; "-" means standard
 * input.
 */
function readReferenceArgument(argument: string | undefined): {
  readonly text: string;
  readonly parts: readonly DetachedClaim[];
} {
  const source = argument ?? process.env[REFERENCE_VARIABLE];
  const text = source === undefined || source === "" || source === "-" ? readStdin() : source.trim();
  try {
    return { text, parts: decodeReference(text) };
  } catch (cause) {
    throw new CommandError("lost", `${(cause as Error).message}; nothing was changed`, {
      details: { reason: "malformed" },
      cause,
    });
  }
}

const NO_REFERENCE = `no reference given: pass it as an argument, in ${REFERENCE_VARIABLE} or on standard input`;

function readStdin(): string {
  if (isatty(0)) {
    throw new CommandError("usage", NO_REFERENCE);
  }
  const bytes = Buffer.alloc(MAX_STDIN_BYTES);
  let length = 0;
  for (;;) {
    let read: number;
    try {
      read = readSync(0, bytes, length, bytes.length - length, null);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === "EOF" || code === "EBADF") break;
      if (code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
      continue;
    }
    if (read === 0) break;
    length += read;
    if (length === bytes.length) throw new CommandError("usage", "standard input is too long for a reference");
  }
  const text = bytes.toString("utf8", 0, length).trim();
  if (text === "") throw new CommandError("usage", NO_REFERENCE);
  return text;
}

function reporterFlags({ quiet, verbose, json }: AcquireFlags): { quiet?: boolean; verbose?: boolean; json?: boolean } {
  return { ...(quiet === true && { quiet }), ...(verbose === true && { verbose }), ...(json === true && { json }) };
}

function openReferenceStore(flags: ReferenceFlags): Promise<Store> {
  return openStore(flags, { order: "strict" });
}

async function withStore(openingStore: Promise<Store>, work: (store: Store) => Promise<number>): Promise<number> {
  const store = await openingStore.catch((error: unknown) => {
    if (error instanceof InterruptedError) throw error;
    const { kind, code, message, details, cause } = toCommandError(error, "the store");
    throw new CommandError(kind, `${message}; nothing was changed`, { code, details, cause });
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}
