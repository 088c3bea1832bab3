/**
 * Waits until enough replicas have a write. WAIT blocks its connection and counts only writes of that connection. So it
 * runs on a connection of its own, after a write there that is later than the write in question.
 *
 * Invariants
 * - A marker is set over the command connection, after the commands, and deleted over the WAIT connection, before WAIT.
 *   So a replica that acknowledges has everything written before. If the marker is not found, the WAIT connection leads
 *   to another server than the commands, and its answer is not used.
 * - Each node has one round at a time; calls that arrive during a round share the next one.
 */

import type { CallTimeouts } from "../call-timeouts.ts";
import type { ClientAdapter, CommandConnection } from "./clients/types.ts";
import { toMarkerKey } from "./key-names.ts";
import type { ReplicaOptions } from "./options.ts";
import type { SendCommand } from "./script-codec.ts";

/** How long the driver waits for replicas by default, in milliseconds. */
const DEFAULT_TIMEOUT_MS = 1_000;

/**
 * DEL comes first because Redis does not refuse it when memory is full: holders must be able to renew. The marker is an
 * argument, not one of the KEYS, because client libraries may add a prefix to those.
 */
const SET_MARKER_SCRIPT = "redis.call('DEL', ARGV[1]) redis.call('SET', ARGV[1], '1', 'PX', ARGV[2])";
/** Time to live of a marker that is not deleted, in milliseconds. */
const MARKER_TTL_MS = "10000";

interface NodeBatch {
  /** Settles when the current round has ended. */
  lastRound: Promise<unknown>;
  nextRound: { readonly routingKeys: Set<string>; readonly done: Promise<void> } | null;
}

export class ReplicaAcks {
  readonly #adapter: ClientAdapter;
  readonly #send: SendCommand;
  readonly #timeouts: CallTimeouts;
  /** Makes the marker keys of this driver its own. */
  readonly #inboxId: string;
  readonly #minAcks: number;
  readonly #timeoutMs: number;
  #markerCount = 0;
  /** By node name. */
  readonly #batches = new Map<string, NodeBatch>();
  readonly #connections = new Map<string, Promise<CommandConnection>>();
  #isClosed = false;

  constructor(
    adapter: ClientAdapter,
    send: SendCommand,
    timeouts: CallTimeouts,
    inboxId: string,
    { minAcks, timeoutMs = DEFAULT_TIMEOUT_MS }: ReplicaOptions,
  ) {
    this.#adapter = adapter;
    this.#send = send;
    this.#timeouts = timeouts;
    this.#inboxId = inboxId;
    this.#minAcks = minAcks;
    this.#timeoutMs = timeoutMs;
  }

  /**
   * Settles when enough replicas have everything written to this master before.
   * @throws Error if they do not acknowledge in time
   */
  waitForAcks(routingKey: string): Promise<void> {
    const node = this.#adapter.resolveMaster(routingKey);
    if (node === null) return Promise.reject(new Error("redis: no known master serves this slot"));
    const batch = this.#batches.get(node) ?? { lastRound: Promise.resolve(), nextRound: null };
    this.#batches.set(node, batch);
    if (batch.nextRound === null) {
      const routingKeys = new Set<string>();
      const done = batch.lastRound.then(() => {
        batch.nextRound = null;
        return this.#runRound(node, [...routingKeys]);
      });
      batch.nextRound = { routingKeys, done };
      batch.lastRound = done.catch(() => undefined); // the callers of this round get the error
    }
    batch.nextRound.routingKeys.add(routingKey);
    return batch.nextRound.done;
  }

  close(): void {
    this.#isClosed = true;
    for (const node of [...this.#connections.keys()]) this.#dropConnection(node);
  }

  async #runRound(node: string, routingKeys: readonly string[]): Promise<void> {
    const ackCount = await this.#countAcks(node, routingKeys).catch((error: unknown) => {
      this.#dropConnection(node); // a new connection finds the right server
      throw error;
    });
    if (ackCount >= this.#minAcks) return;
    throw new Error(`redis: ${ackCount} of ${this.#minAcks} replicas acknowledged within ${this.#timeoutMs} ms`);
  }

  async #countAcks(node: string, routingKeys: readonly string[]): Promise<number> {
    const markers = routingKeys.map((routingKey) => toMarkerKey(routingKey, `${this.#inboxId}${++this.#markerCount}`));
    const buildSetMarker = (routingKey: string, index: number): string[] => [
      "EVAL",
      SET_MARKER_SCRIPT,
      "1",
      routingKey,
      markers[index] as string,
      MARKER_TTL_MS,
    ];
    await Promise.all(
      routingKeys.map((routingKey, index) => this.#send(buildSetMarker(routingKey, index), routingKey)),
    );
    if (this.#isClosed) throw new Error("redis: the driver was closed");
    const existing = this.#connections.get(node);
    const opening =
      existing ??
      Promise.resolve(this.#adapter.openCommandConnection(routingKeys[0] as string, () => this.#dropConnection(node)));
    this.#connections.set(node, opening);
    const connection = await this.#timeouts.bound(opening, "connection for WAIT");
    const removed = markers.map((marker) => connection.send(["DEL", marker]));
    const acks = connection.send(["WAIT", String(this.#minAcks), String(this.#timeoutMs)]);
    const replies = await this.#timeouts.bound(Promise.all([acks, ...removed]), "answer to WAIT");
    if (replies.slice(1).some((reply) => Number(reply) !== 1)) {
      throw new Error("redis: the commands and WAIT reached different servers");
    }
    return Number(replies[0]);
  }

  #dropConnection(node: string): void {
    const connection = this.#connections.get(node);
    this.#connections.delete(node);
    connection?.then(
      (opened) => opened.disconnect(),
      () => undefined, // it was never opened
    );
  }
}
