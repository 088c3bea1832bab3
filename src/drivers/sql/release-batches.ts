/**
 * Releases for one bucket that wait behind another call for it share a statement: a process that gives up thousands of
 * claims sends as few statements as the database executes one after another anyway, and its renewals wait for one of
 * them at most.
 *
 * Invariant: releases of a bucket join a batch only until it has a connection, or until another call that they must not
 * overtake takes a place behind it.
 */

import type { ReleaseReply, ReleaseRow } from "./dialect.ts";

/** The most rows of one statement: the database executes nothing else for the bucket meanwhile. */
export const MAX_RELEASES = 500;

interface Batch {
  readonly rows: ReleaseRow[];
  readonly reply: Promise<ReleaseReply>;
}

/**
 * Sends a batch when no other call for its bucket is in its way. `takeRows` returns all that have joined it by then;
 * none can join it later.
 */
export type SendBatch = (takeRows: () => readonly ReleaseRow[]) => Promise<ReleaseReply>;

export class ReleaseBatches {
  /** By bucket: the batches that can still be joined. */
  readonly #open = new Map<number, Batch>();

  /** Joins the open batch of the bucket, or sends a new one. The reply has the flags of these rows. */
  async join(bucket: number, rows: readonly ReleaseRow[], send: SendBatch): Promise<ReleaseReply> {
    let batch = this.#open.get(bucket);
    if (batch === undefined || batch.rows.length + rows.length > MAX_RELEASES) batch = this.#begin(bucket, send);
    const first = batch.rows.length;
    for (const row of rows) batch.rows.push(row);
    const { flags, pushes } = await batch.reply;
    return { flags: flags.slice(first, first + rows.length), pushes: first === 0 ? pushes : [] };
  }

  /** A call that later releases must not overtake takes its place behind the open batch. */
  closeBatch(bucket: number): void {
    this.#open.delete(bucket);
  }

  #begin(bucket: number, send: SendBatch): Batch {
    const close = (): void => {
      if (this.#open.get(bucket) === batch) this.#open.delete(bucket);
    };
    const rows: ReleaseRow[] = [];
    const reply = send(() => {
      close();
      return rows;
    });
    const batch: Batch = { rows, reply };
    // after the call has taken its place, which closes the batch before it
    this.#open.set(bucket, batch);
    reply.catch(close); // it may have failed before it had a connection
    return batch;
  }
}
