/**
 * Do enough replicas have what was written? WAIT blocks its connection, and counts the writes of that one alone. So it goes
 * over a connection of our own, behind a write of its own that comes after what is asked about.
 *
 * Invariants
 * - A mark is set the way our commands go, after them, and removed over our own connection, behind which WAIT stands. So
 *   whoever acknowledges has all that was written before. No mark found: our own connection is with another server than
 *   our commands, and what it says counts for nothing.
 * - Each node has one round under way; who asks meanwhile shares the next.
 */

import type { ClientAdapter, CommandConnection } from "./clients/types.ts";

/** How many replicas must have a grant before it is told, and how long they are waited for. */
export interface ReplicaSettings {
  readonly minAcks: number;
  readonly timeoutMs: number;
}

export interface ReplicaAcksOptions {
  readonly adapter: ClientAdapter;
  readonly settings: ReplicaSettings;
  /** The name of a mark beside this route. */
  readonly createMarkerKey: (routingKey: string) => string;
  readonly send: (args: string[], routingKey: string) => Promise<unknown>;
  readonly bound: <T>(work: Promise<T>, what: string) => Promise<T>;
}

/**
 * Its first write is one that a full store does not refuse: whoever holds must be able to renew. The mark is no KEY, since a
 * client library may put a prefix before those.
 */
const SET_MARKER_SCRIPT = "redis.call('DEL', ARGV[1]) redis.call('SET', ARGV[1], '1', 'PX', ARGV[2])";
/** How long a mark stays that nobody removes, in milliseconds. */
const MARKER_TTL_MS = "10000";

interface NodeBatch {
  /** Settles when the round under way is over. */
  lastRound: Promise<unknown>;
  nextRound: { readonly routingKeys: Set<string>; readonly done: Promise<void> } | null;
}

export class ReplicaAcks {
  readonly #options: ReplicaAcksOptions;
  /** By the names of nodes. */
  readonly #batches = new Map<string, NodeBatch>();
  readonly #connections = new Map<string, Promise<CommandConnection>>();
  #isClosed = false;

  constructor(options: ReplicaAcksOptions) {
    this.#options = options;
  }

  /** Settles when enough replicas have all that was written this way. @throws Error if they do not say so in time */
  waitForAcks(routingKey: string): Promise<void> {
    const node = this.#options.adapter.resolveMaster(routingKey);
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
      batch.lastRound = done.catch(() => undefined); // whoever asked is told
    }
    batch.nextRound.routingKeys.add(routingKey);
    return batch.nextRound.done;
  }

  close(): void {
    this.#isClosed = true;
    for (const node of [...this.#connections.keys()]) this.#dropConnection(node);
  }

  async #runRound(node: string, routingKeys: readonly string[]): Promise<void> {
    const { minAcks, timeoutMs } = this.#options.settings;
    const ackCount = await this.#countAcks(node, routingKeys).catch((error: unknown) => {
      this.#dropConnection(node); // a new connection finds the right server
      throw error;
    });
    if (ackCount >= minAcks) return;
    throw new Error(`redis: ${ackCount} of ${minAcks} replicas acknowledged within ${timeoutMs} ms`);
  }

  async #countAcks(node: string, routingKeys: readonly string[]): Promise<number> {
    const { adapter, settings, createMarkerKey, send, bound } = this.#options;
    const markers = routingKeys.map((routingKey) => createMarkerKey(routingKey));
    const buildSetMarker = (routingKey: string, index: number): string[] => [
      "EVAL",
      SET_MARKER_SCRIPT,
      "1",
      routingKey,
      markers[index] as string,
      MARKER_TTL_MS,
    ];
    await Promise.all(routingKeys.map((routingKey, index) => send(buildSetMarker(routingKey, index), routingKey)));
    if (this.#isClosed) throw new Error("redis: the driver was closed");
    const knownConnection = this.#connections.get(node);
    const opening =
      knownConnection ??
      Promise.resolve(adapter.openCommandConnection(routingKeys[0] as string, () => this.#dropConnection(node)));
    this.#connections.set(node, opening);
    const connection = await bound(opening, "connection for WAIT");
    const removed = markers.map((marker) => connection.send(["DEL", marker]));
    const acks = connection.send(["WAIT", String(settings.minAcks), String(settings.timeoutMs)]);
    const replies = await bound(Promise.all([acks, ...removed]), "answer to WAIT");
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
      () => undefined, // it was never there
    );
  }
}
