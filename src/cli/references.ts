/**
 * `holdfast acquire`, `renew`, `release` and `check`: a lock carried from one process to another as a reference. Each
 * refusal has its reason and the same exit code as a lock that was lost.
 */

import { readSync } from "node:fs";
import { isatty } from "node:tty";
import { shownDuration } from "../duration.ts";
import { readReference } from "../read-reference.ts";
import type { Referenced } from "../reference.ts";
import { CommandError, commandError } from "./failure.ts";
import { heldView, REFERENCE } from "./nested.ts";
import { deliver, jsonLine, print, quotedList } from "./output.ts";
import { reach } from "./reach.ts";
import type { RunFlags } from "./run-options.ts";
import { conflictExitCodeOf, leaseOf, waitOf } from "./run-options.ts";
import { catchSignals, InterruptedError } from "./signals.ts";
import type { Store } from "./store.ts";
import { openStore } from "./store.ts";
import { voiceOf } from "./voice.ts";
import { acquireInWords } from "./waiting.ts";
import { labelFor, wantedOf } from "./wanted.ts";

/** Flags of the commands that take a reference. */
export interface ReferenceFlags {
  readonly url?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

const DEFAULT_TTL_MS = 30_000;
/** A reference of the most and longest keys is far shorter. */
const MOST_STDIN_BYTES = 262_144;

/**
 * Acquires, detaches and prints the reference; the lease runs from then on, and nobody renews it but `holdfast renew`.
 * @throws CommandError as acquireInWords()
 */
export async function acquireCommand(keys: readonly string[], flags: RunFlags): Promise<number> {
  const wanted = wantedOf(keys, flags.shared === true, flags.permits);
  const ttl = flags.ttl === undefined ? DEFAULT_TTL_MS : leaseOf(flags.ttl);
  if (ttl === "session") {
    throw new CommandError("usage", "--ttl must be a duration here: no session outlives `holdfast acquire`");
  }
  const signals = catchSignals();
  // the script that called us is whom people look for: we are gone in a moment
  const label = flags.label ?? labelFor("holdfast acquire", process.ppid);
  const waitMs = waitOf(flags);
  const conflictExitCode = conflictExitCodeOf(flags.conflictExitCode);
  const startedAt = performance.now();
  const reaching = reach({ ...voiceFlags(flags), url: flags.url, waitMs, signal: signals.ending }, { handoffs: 1 });
  return withStore(signals.orInterrupted(reaching), async (store) => {
    if (store.driver.traits.survives === "process") {
      throw new CommandError(
        "usage",
        `${store.name} ends with \`holdfast acquire\`, and the lock with it: name a store`,
      );
    }
    if (!store.driver.traits.lease.claim) {
      throw new CommandError(
        "usage",
        `${store.name} keeps a lock only as long as its client's session lives, so none can be carried by a reference; use \`holdfast run KEY -- COMMAND\``,
      );
    }
    const options = { ...voiceFlags(flags), conflictExitCode, waitMs, startedAt, ttl, label, signal: signals.ending };
    const lock = await acquireInWords(store, wanted, options);
    const token = store.locks.traits.fencing ? lock.token : null;
    const reference = await lock.detach();
    try {
      deliver(flags.json === true ? jsonLine({ reference, keys: lock.keys, token, ttlMs: ttl }) : reference);
    } catch (error) {
      // nobody has got the reference, so nobody could give the lock back
      await (await store.locks.attach(reference)).release();
      throw new CommandError("output", `${(error as Error).message}; ${quotedList(lock.keys)} was given back`, {
        cause: error,
      });
    }
    voiceOf(flags).detail(
      `holding ${quotedList(lock.keys)} for ${shownDuration(ttl)}, unless it is renewed or released`,
    );
    return 0;
  });
}

/** Restarts the lease of a reference. @throws CommandError lost (123) with the reason */
export async function renewCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { text, parts } = referenceFrom(argument);
  return withStore(opened(flags), async (store) => {
    const [first] = parts as readonly [Referenced];
    if (first.claim.ttlMs === "session") {
      // it lasts as long as its run: taking it up here would end it with us
      return tellStanding(store, parts, flags, "belongs to a run and needs no renewal");
    }
    const lock = await store.locks.attach(text).catch((error: unknown) => refuse(error, parts, store));
    await lock.detach();
    const { keys } = lock;
    if (flags.json === true) print(jsonLine({ renewed: true, keys, ttlMs: first.claim.ttlMs }));
    else voiceOf(flags).tell(`renewed ${quotedList(keys)}: held for another ${shownDuration(first.claim.ttlMs)}`);
    return 0;
  });
}

/** Gives a lock back by its reference. @throws CommandError lost (123) with the reason */
export async function releaseCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { text, parts } = referenceFrom(argument);
  return withStore(opened(flags), async (store) => {
    const lock = await store.locks.attach(text).catch((error: unknown) => leaveRevoked(error, parts, store));
    if (!(await lock.release())) throw notOurs(parts, "unknown");
    if (flags.json === true) print(jsonLine({ released: true, keys: lock.keys }));
    else voiceOf(flags).tell(`released ${quotedList(lock.keys)}`);
    return 0;
  });
}

/**
 * What was revoked keeps its place until it is given back (design A.24), and nobody but who has the reference can do that.
 * @throws CommandError lost (123) all the same: it was not held any more
 */
async function leaveRevoked(error: unknown, parts: readonly Referenced[], store: Store): Promise<never> {
  const { code, reason = "unknown" } = error as { readonly code?: unknown; readonly reason?: string };
  if (code !== "LOCK_LOST" || (reason !== "revoked" && reason !== "maxHold")) refuse(error, parts, store);
  await store.driver.release(parts.map(({ claim }) => claim)).catch((failure: unknown) => {
    throw commandError(failure, store.name);
  });
  const keys = keysOf(parts);
  throw new CommandError("lost", `${quotedList(keys)} is given back, but was not held any more: ${WHY[reason]}`, {
    details: { reason, keys },
    cause: error,
  });
}

/** Is the lock of a reference still held? Changes nothing. @throws CommandError lost (123) with the reason */
export async function checkCommand(argument: string | undefined, flags: ReferenceFlags): Promise<number> {
  const { parts } = referenceFrom(argument);
  return withStore(opened(flags), (store) => tellStanding(store, parts, flags, null));
}

async function tellStanding(
  { locks, driver, name }: Store,
  parts: readonly Referenced[],
  flags: ReferenceFlags,
  remark: string | null,
): Promise<number> {
  let remainingMs = Number.POSITIVE_INFINITY;
  for (const part of parts) {
    const view = await heldView(locks, part, part.claim.holds[0].key).catch((error: unknown) => {
      throw commandError(error, name);
    });
    if (view === null) {
      // not listed, so asking for its end cannot take it up
      const [answer] = await driver.renew([part.claim]);
      throw notOurs(parts, (answer?.state === "none" ? answer.reason : undefined) ?? "unknown");
    }
    if (view.ttlMs !== "session" && view.answer.state === "held")
      remainingMs = Math.min(remainingMs, view.answer.ttlMs);
  }
  const keys = keysOf(parts);
  const forEver = remainingMs === Number.POSITIVE_INFINITY;
  const token = parts.reduce((highest, part) => (part.token > highest ? part.token : highest), 0n);
  if (flags.json === true) {
    print(jsonLine({ held: true, keys, token, remainingMs: forEver ? null : Math.floor(remainingMs) }));
  } else {
    const left = forEver ? "until its session ends" : `for another ${shownDuration(remainingMs)}`;
    voiceOf(flags).tell(`${quotedList(keys)} ${remark ?? `is held ${left}, token ${token}`}`);
  }
  return 0;
}

function refuse(error: unknown, parts: readonly Referenced[], { name }: Store): never {
  const { code, reason } = error as { readonly code?: unknown; readonly reason?: string };
  if (code === "LOCK_LOST") throw notOurs(parts, reason ?? "unknown", error);
  throw commandError(error, name);
}

const WHY: Readonly<Record<string, string>> = {
  expired: "its lease has ended",
  released: "it was released already",
  revoked: "it was revoked",
  maxHold: "it was held for longer than it may",
  unknown: "the store does not know it: it was released, or its lease ended long ago, or it is of another store",
};

function notOurs(parts: readonly Referenced[], reason: string, cause?: unknown): CommandError {
  const keys = keysOf(parts);
  const why = WHY[reason] ?? reason;
  return new CommandError("lost", `${quotedList(keys)} is not held by this reference: ${why}; nothing was changed`, {
    details: { reason, keys },
    cause,
  });
}

function keysOf(parts: readonly Referenced[]): string[] {
  return parts.flatMap(({ claim }) => claim.holds.map(({ key }) => key)).sort();
}

/** From the argument, else HOLDFAST_REFERENCE, else standard input; "-" is standard input too. */
function referenceFrom(argument: string | undefined): { readonly text: string; readonly parts: readonly Referenced[] } {
  const given = argument ?? process.env[REFERENCE];
  const text = given === undefined || given === "" || given === "-" ? readStdin() : given.trim();
  try {
    return { text, parts: readReference(text) };
  } catch (cause) {
    throw new CommandError("lost", `${(cause as Error).message}; nothing was changed`, {
      details: { reason: "malformed" },
      cause,
    });
  }
}

function readStdin(): string {
  if (isatty(0)) {
    throw new CommandError("usage", `which reference? Give it as an argument, in ${REFERENCE} or on standard input`);
  }
  const bytes = Buffer.alloc(MOST_STDIN_BYTES);
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
    if (length === bytes.length) throw new CommandError("usage", "standard input is no reference: it is too long");
  }
  const text = bytes.toString("utf8", 0, length).trim();
  if (text === "")
    throw new CommandError("usage", `which reference? Give it as an argument, in ${REFERENCE} or on standard input`);
  return text;
}

function voiceFlags({ quiet, verbose, json }: RunFlags): { quiet?: boolean; verbose?: boolean; json?: boolean } {
  return { ...(quiet === true && { quiet }), ...(verbose === true && { verbose }), ...(json === true && { json }) };
}

function opened({ url }: ReferenceFlags): Promise<Store> {
  return openStore(url, { handoffs: 1 });
}

async function withStore(opening: Promise<Store>, work: (store: Store) => Promise<number>): Promise<number> {
  const store = await opening.catch((error: unknown) => {
    if (error instanceof InterruptedError) throw error;
    const { why, code, message, details, cause } = commandError(error, "the store");
    throw new CommandError(why, `${message}; nothing was changed`, { code, details, cause });
  });
  try {
    return await work(store);
  } finally {
    await store.locks.close();
  }
}
