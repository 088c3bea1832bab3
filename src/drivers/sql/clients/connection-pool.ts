/** A pool of connections that the driver opens itself, for a library whose own pool cannot be relied on. */

import { BreakListeners, beginsTransaction, createConnection, endsTransaction } from "./connection.ts";
import type { DedicatedConnection, SqlConnection } from "./types.ts";

interface PooledConnection {
  readonly connection: DedicatedConnection;
  hasEnded: boolean;
}

/** Invariant: at most `max` connections are open or being opened, and nobody waits while one is idle. */
export class ConnectionPool {
  readonly #open: () => Promise<DedicatedConnection>;
  readonly #max: number;
  readonly #isServerError: (error: unknown) => boolean;
  #count = 0;
  readonly #idle: PooledConnection[] = [];
  /** Called when one may be free, in the order in which they came. */
  readonly #waiting: (() => void)[] = [];
  readonly #breakListeners = new BreakListeners();
  #isClosed = false;

  constructor(open: () => Promise<DedicatedConnection>, max: number, isServerError: (error: unknown) => boolean) {
    this.#open = open;
    this.#max = max;
    this.#isServerError = isServerError;
  }

  async take(): Promise<SqlConnection> {
    for (;;) {
      const idle = this.#idle.pop();
      if (idle !== undefined) return this.#lend(idle);
      if (this.#isClosed) throw new Error("the pool of connections is closed");
      if (this.#count < this.#max) return this.#lend(await this.#add());
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  get watchBreaks(): BreakListeners["watchBreaks"] {
    return this.#breakListeners.watchBreaks;
  }

  /** In an orderly way, or the server logs that they were aborted. Those in use are closed when they are released. */
  close(): void {
    this.#isClosed = true;
    for (const { connection } of this.#idle.splice(0)) connection.release();
    for (const wake of this.#waiting.splice(0)) wake();
  }

  async #add(): Promise<PooledConnection> {
    this.#count++;
    let connection: DedicatedConnection;
    try {
      connection = await this.#open();
    } catch (error) {
      this.#remove();
      throw error;
    }
    const pooled: PooledConnection = { connection, hasEnded: false };
    connection.onEnd(() => {
      pooled.hasEnded = true;
      const index = this.#idle.indexOf(pooled);
      if (index !== -1) this.#idle.splice(index, 1);
      this.#remove();
      this.#breakListeners.notify();
    });
    return pooled;
  }

  #remove(): void {
    this.#count--;
    this.#waiting.shift()?.();
  }

  #lend(pooled: PooledConnection): SqlConnection {
    const { connection } = pooled;
    let isInTransaction = false;
    return createConnection({
      async run(text, values) {
        if (beginsTransaction(text)) isInTransaction = true;
        const result = await connection.query(text, values);
        if (endsTransaction(text)) isInTransaction = false;
        return result;
      },
      release: (isBroken) => {
        if (pooled.hasEnded) return;
        if (isBroken || isInTransaction) return connection.release(true);
        if (this.#isClosed) return connection.release();
        this.#idle.push(pooled);
        this.#waiting.shift()?.();
      },
      isServerError: this.#isServerError,
    });
  }
}
