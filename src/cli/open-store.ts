/** Opens the store of a command, with the name under which messages show it, and the administration of its server. */

import { setTimeout as delay } from "node:timers/promises";
import { Client } from "../client/client.ts";
import { createDriver } from "../client/driver-url.ts";
import type { Locks } from "../client/locks.ts";
import { bindLocks } from "../client/locks.ts";
import type { LocksOptions } from "../client/options.ts";
import { parseClientOptions } from "../client/options.ts";
import type { AdminConnection } from "../drivers/server/admin-connection.ts";
import type { KeepSessionSocket } from "../drivers/server/keep-session.ts";
import { openKeepSessionSocket } from "../drivers/server/keep-session.ts";
import type { ClaimView, Driver, Page, Traits } from "../spi/driver.ts";
import { formatDuration } from "../util/duration.ts";
import {
  CommandError,
  createSilenceError,
  isTransient,
  isUnresponsive,
  toCallError,
  toCommandError,
} from "./errors.ts";
import { loadDriver } from "./load-driver.ts";
import { createReporter } from "./output.ts";
import type { StoreChoice, StoreFlags } from "./store-choice.ts";
import { chooseStore, describeStore } from "./store-choice.ts";
import { resultWithin } from "./timeout.ts";

/** An open store. */
export interface Store {
  readonly locks: Locks;
  readonly driver: Driver;
  readonly traits: Traits;
  /** Its name in messages. */
  readonly name: string;
  /** Releases what is held, and disconnects. A driver that does not end, or fails at its end, cannot change the result of a command. */
  close(): Promise<void>;
}

/** Longer than a client waits for the answers to its releases. */
const CLOSE_TIMEOUT_MS = 6_000;

/**
 * Connects.
 * @throws CommandError unreachable, refused, or usage for an invalid url or a module that has no driver
 */
export async function openStore(flags: StoreFlags, options: LocksOptions = {}): Promise<Store> {
  const choice = chooseStore(flags);
  const name = describeStore(choice);
  try {
    // openStoreWithRetry() decides how long to wait
    const driver = await createStoreDriver(choice, { opensOnce: true });
    const client = new Client(driver, parseClientOptions(options), Math.random);
    const { traits } = await client.open();
    const close = (): Promise<void> => resultWithin(CLOSE_TIMEOUT_MS, client.close()).catch(() => undefined);
    return { locks: bindLocks(client), driver, traits, name, close };
  } catch (error) {
    throw toCommandError(error, name);
  }
}

/** Not open. @throws CommandError, TypeError usage; unreachable or refused if a function of the user failed */
async function createStoreDriver(choice: StoreChoice, options: { readonly opensOnce: boolean }): Promise<Driver> {
  if (choice.driver === undefined) return createDriver(choice.url, options);
  try {
    return await loadDriver(choice.driver);
  } catch (error) {
    const { kind, message, cause } = error as CommandError;
    throw kind === "usage" ? new CommandError(kind, `${choice.origin}: ${message}`, { cause }) : error;
  }
}

/** The pauses between attempts to connect. */
const MIN_PAUSE_MS = 100;
const MAX_PAUSE_MS = 1_000;
/** A wait that is shorter ends no attempt to connect: a healthy server may need as long on a busy machine. */
const SHORTEST_CONNECT_MS = 1_000;
/** No attempt begins with less time left. */
const MIN_ATTEMPT_MS = 10;
/** After this time a message says what the command waits for. */
const NOTICE_AFTER_MS = 1_000;

export interface RetryOptions extends StoreFlags {
  /** The longest wait from now, in milliseconds; 0: connect once; undefined: no limit. */
  readonly waitMs: number | undefined;
  readonly signal?: AbortSignal;
  readonly quiet?: boolean;
  readonly verbose?: boolean;
  readonly json?: boolean;
}

/**
 * Opens the store within the wait, so that a wait covers a server that is frozen or is being restarted. Without a limit
 * it begins to wait only if a server is there: else the address may be wrong, and no time corrects that.
 * @throws CommandError unreachable: a transient error at the end of the wait, any other at once; refused; usage for an
 * invalid url or driver
 */
export async function openStoreWithRetry(options: RetryOptions, settings: LocksOptions): Promise<Store> {
  const { waitMs = Number.POSITIVE_INFINITY, signal } = options;
  if (waitMs === 0) return openStore(options, settings);
  const choice = chooseStore(options);
  const startedAt = performance.now();
  const deadline = startedAt + Math.max(waitMs, SHORTEST_CONNECT_MS);
  let mayWait = waitMs !== Number.POSITIVE_INFINITY;
  let isReported = false;
  let lastFailure: CommandError | null = null;
  for (let pauseMs = MIN_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, MAX_PAUSE_MS)) {
    const opened = await openBefore(options, settings, deadline);
    if (opened !== null && "locks" in opened) return opened;
    // an attempt that the end of the wait has cut says less than a complete one
    const result: CommandError = opened ?? lastFailure ?? createSilenceError(describeStore(choice));
    lastFailure = result;
    const now = performance.now();
    mayWait ||= isUnresponsive(result);
    if (!mayRetry(result, choice) || !mayWait || signal?.aborted === true) throw result;
    if (now >= deadline) throw toTimeoutError(result, waitMs);
    if (!isReported && now >= startedAt + NOTICE_AFTER_MS) {
      isReported = true;
      createReporter(options).info(`${result.message}: trying again${describeRest(deadline - now)}`);
    }
    await delay(Math.min(pauseMs, deadline - now), undefined, { ...(signal && { signal }) }).catch(() => undefined);
    // an attempt without enough time would end as "did not answer", and hide why the earlier ones failed
    if (performance.now() >= deadline - MIN_ATTEMPT_MS) throw toTimeoutError(result, waitMs);
  }
}

/**
 * The drivers of other stores have retried themselves until their connectTimeout, and report lasting causes as
 * refusals.
 */
function mayRetry(error: CommandError, { url = "", driver }: StoreChoice): boolean {
  const isLockServer = driver === undefined && /^(?:holdfasts?:|holdfast\+unix:|$)/i.test(url);
  return isLockServer ? isTransient(error) : error.kind === "unreachable";
}

function describeRest(restMs: number): string {
  return restMs === Number.POSITIVE_INFINITY ? "" : ` for up to ${formatDuration(Math.ceil(restMs / 1_000) * 1_000)}`;
}

/** Opens the store, or gives the error; null at the deadline. */
async function openBefore(
  flags: StoreFlags,
  settings: LocksOptions,
  deadline: number,
): Promise<Store | CommandError | null> {
  const opening = openStore(flags, settings).catch((error: unknown) => error as CommandError);
  const result = await resultWithin(Math.max(deadline - performance.now(), 1), opening);
  if (result !== undefined) return result;
  void opening.then((store) => ("locks" in store ? store.close() : undefined));
  return null;
}

export function toTimeoutError({ kind, message, code, details, cause }: CommandError, waitMs: number): CommandError {
  return new CommandError(kind, `waited ${formatDuration(waitMs)}: ${message}`, { code, details, cause });
}

/** If the server has just died, the next one may take this long to start and to restore our session. */
const KEEP_SESSION_TIMEOUT_MS = 5_000;
const KEEP_SESSION_RETRY_MS = 100;

/**
 * Opens a keep-session connection: the session lasts as long as any process has it open, and the child inherits it.
 * Null if the store has no such connections.
 * @param deadline the end of the wait, by performance.now()
 * @throws CommandError unreachable; the signal's reason on abort
 */
export async function openKeepSessionWithRetry(
  { driver, name }: Store,
  deadline: number,
  signal: AbortSignal,
): Promise<KeepSessionSocket | null> {
  const endsAt = Math.max(deadline, performance.now() + KEEP_SESSION_TIMEOUT_MS);
  for (;;) {
    try {
      return await openKeepSessionSocket(driver);
    } catch (error) {
      signal.throwIfAborted();
      if (performance.now() >= endsAt)
        throw new CommandError("unreachable", `${name}: ${(error as Error).message}; nothing was run`, {
          cause: error,
        });
      await delay(KEEP_SESSION_RETRY_MS);
    }
  }
}

/** The most claims that one command lists. */
export const MAX_LISTED = 10_000;

/**
 * Opens the admin connection of the store's server. Null if the store is not a Holdfast server.
 * @throws CommandError unreachable or refused
 */
export async function openAdmin({ driver, name }: Store): Promise<AdminConnection | null> {
  // loaded only when it is needed: `run` starts sooner without it
  const { openAdminConnection } = await import("../drivers/server/admin-connection.ts");
  try {
    return await openAdminConnection(driver);
  } catch (error) {
    throw toCommandError(error, name);
  }
}

/** Like openAdmin(), for a command that needs the connection. @throws CommandError usage */
export async function requireAdmin(store: Store, commandName: string): Promise<AdminConnection> {
  const admin = await openAdmin(store);
  if (admin !== null) return admin;
  throw new CommandError("usage", `${commandName} needs a Holdfast server, and ${store.name} is not one`);
}

/** The claims on keys that begin with `prefix`, in the order of keys and queues; at most `max`. @throws CommandError */
export async function listClaims(
  { driver, traits, name }: Store,
  prefix: string,
  max: number = MAX_LISTED,
): Promise<Page<ClaimView>> {
  if (traits.list === "own") {
    const problem = "it keeps numbers or names made of the keys, so it cannot be asked for keys";
    throw new CommandError("usage", `${name} lists no locks: ${problem}; on PostgreSQL doctor counts them`);
  }
  try {
    return await driver.list({ prefix }, { max });
  } catch (error) {
    throw toCallError(error, name);
  }
}
