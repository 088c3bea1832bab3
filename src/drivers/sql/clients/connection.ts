/** What the adapters of database servers share. */

import type { Emitter } from "./emitter.ts";
import { ignoreError, watchEvents } from "./emitter.ts";
import type { SqlConnection, SqlResult, SqlValue } from "./types.ts";

/** How a library runs a statement on one connection. */
interface ConnectionMethods {
  run(text: string, values: readonly SqlValue[]): Promise<SqlResult>;
  /** Called once. */
  release(isBroken: boolean): void;
  /**
   * Whether the server reported it. After any other error (a timeout of the library, a broken socket) the state of the
   * connection is unknown.
   */
  isServerError(error: unknown): boolean;
}

/**
 * A connection whose release is safe to repeat, and which is not reused after an error that leaves its state unknown.
 */
export function createConnection({ run, release, isServerError }: ConnectionMethods): SqlConnection {
  let isReleased = false;
  let isUnknown = false;
  return {
    async query(text, values = []) {
      try {
        return await run(text, values);
      } catch (error) {
        if (!isServerError(error)) isUnknown = true;
        throw error;
      }
    },
    release(isBroken = false) {
      if (isReleased) return;
      isReleased = true;
      release(isBroken || isUnknown);
    },
  };
}

/** Of the driver's own statements: whether it begins a transaction. */
export function beginsTransaction(text: string): boolean {
  return /^\s*(?:begin|start)\b/i.test(text);
}

/** Of the driver's own statements: whether it ends a transaction. */
export function endsTransaction(text: string): boolean {
  return /^\s*(?:commit|rollback)\b/i.test(text);
}

/** Gives a connection that cannot be pooled to one caller at a time. */
export class ConnectionMutex {
  #last: Promise<void> = Promise.resolve();

  /** Returns the function that unlocks it. */
  async lock(): Promise<() => void> {
    const previous = this.#last;
    let end = ignoreError;
    this.#last = new Promise((resolve) => {
      end = resolve;
    });
    await previous;
    return end;
  }
}

/** Calls its listeners once, and later ones at once. */
export class EndSignal {
  readonly #listeners: (() => void)[] = [];
  #hasEnded = false;

  readonly end = (): void => {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    for (const listener of this.#listeners) listener();
  };

  readonly onEnd = (listener: () => void): void => {
    if (this.#hasEnded) listener();
    else this.#listeners.push(listener);
  };
}

/** The listeners for breaks of a pool or client whose library emits no event for them. */
export class BreakListeners {
  readonly #listeners = new Set<() => void>();

  readonly notify = (): void => {
    for (const listener of this.#listeners) listener();
  };

  /** Called with each connection that is taken from the pool. */
  watchConnection(connection: Emitter): void {
    if (!connection.listeners("end").includes(this.notify)) watchEvents(connection, ["error", "end"], this.notify);
  }

  readonly watchBreaks = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };
}

const listenersByPool = new WeakMap<object, BreakListeners>();

/**
 * Those of all drivers that share the pool, so that it has one hook.
 * @param addHook called once for each pool: what calls notify()
 */
export function breakListeners(pool: object, addHook?: (notify: () => void) => void): BreakListeners {
  let listeners = listenersByPool.get(pool);
  if (listeners === undefined) {
    listeners = new BreakListeners();
    listenersByPool.set(pool, listeners);
    addHook?.(listeners.notify);
  }
  return listeners;
}

/** Properties in which libraries keep the statement and its values. */
const STATEMENT_PROPERTIES: readonly string[] = ["sql", "query", "parameters", "args", "types", "stack", "message"];

/**
 * Copies an error without the statement that a library attaches: its values are ids of claims.
 * @param message for a library that puts the statement into the message
 */
export function copyWithoutStatement(error: unknown, message?: string): unknown {
  if (!(error instanceof Error)) return error;
  const properties = Object.entries(error).filter(([name]) => !STATEMENT_PROPERTIES.includes(name));
  return Object.assign(new Error(message ?? error.message), { name: error.name }, Object.fromEntries(properties));
}

/** The user's transaction would contain, and could undo, the statements of the driver. */
export function createTransactionError(library: string, reason: string): Error {
  return new Error(`${library}: ${reason}; pass a client that no transaction uses`);
}
