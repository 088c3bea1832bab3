/**
 * Collects the claims and releases of one turn of the event loop into few commands: on a Cluster one for each bucket.
 *
 * Invariants
 * - A command is sent at the end of the callback in which its first call was made; of a call made in a microtask, when
 *   the microtasks have run. A lone call waits for nothing. With 16 items it is sent at once: Redis works on these
 *   while this process prepares the next ones.
 * - Releases stand before claims, so that a claim finds what this process releases by the same command.
 * - Each call gets its own answers or error. If the command itself fails, or is late, so are all of its calls.
 */

import { chunk } from "../../util/chunk.ts";
import { rejectOnThrow } from "../../util/timeout.ts";
import type { LateReply } from "./connection.ts";
import { sanitizeError } from "./errors.ts";
import TURN from "./lua/turn.lua";
import type { Script } from "./script-codec.ts";

/**
 * A command with so many items is sent at once. With fewer, the costs of a command outweigh the gain; with many more,
 * the client and Redis work one after the other instead of at the same time: the last item's preparation would delay
 * the first one.
 */
export const ITEMS_PER_COMMAND = 16;

/** The most items of one call that share a command: the server executes nothing else meanwhile. */
const MAX_ITEMS = 512;

/** What it needs of the connection. */
export interface BatchConnection {
  /** Counts the breaks of the connection. */
  readonly epoch: number;
  runScript(script: Script, routingKey: string, args: readonly string[], lateReply: LateReply): Promise<unknown>;
}

interface Call {
  readonly items: readonly string[];
  readonly lateReply: LateReply;
  readonly resolve: (answers: readonly string[]) => void;
  readonly reject: (error: unknown) => void;
}

interface Batch {
  readonly routingKey: string;
  readonly releases: Call[];
  readonly claims: Call[];
  itemCount: number;
}

export class CommandBatches {
  readonly #connection: BatchConnection;
  /** The arguments of turn.lua before the items. */
  readonly #toHeader: (routingKey: string) => readonly string[];
  readonly #onPush: (message: string, isAnswer: boolean) => void;
  /** The calls of this turn of the event loop, for each routing key: one, or in a Cluster one for each bucket. */
  #batches: Batch[] = [];
  #isScheduled = false;
  /**
   * Whether claims and releases go in commands of their own: an error that concerns claims only fails no release then.
   */
  readonly #isSplit: boolean;

  constructor(
    connection: BatchConnection,
    toHeader: (routingKey: string) => readonly string[],
    onPush: (message: string, isAnswer: boolean) => void,
    isSplit: boolean,
  ) {
    this.#connection = connection;
    this.#toHeader = toHeader;
    this.#onPush = onPush;
    this.#isSplit = isSplit;
  }

  /** Sends an item that makes a claim. Resolves to its answer as turn.lua describes it. */
  claim(routingKey: string, item: string, lateReply: LateReply): Promise<string> {
    return new Promise((resolve, reject) => {
      const batch = this.#batchOf(routingKey);
      const onAnswers = ([answer]: readonly string[]): void => resolve(answer as string);
      batch.claims.push({ items: [item], lateReply, resolve: onAnswers, reject });
      this.#onAdded(batch, 1);
    });
  }

  /** Sends items that release claims. Resolves to their answers; rejects if one of them fails. */
  async release(routingKey: string, items: readonly string[], lateReply: LateReply): Promise<readonly string[]> {
    if (items.length === 0) return [];
    if (items.length > MAX_ITEMS) {
      const parts = chunk(items, MAX_ITEMS).map((part) => this.release(routingKey, part, lateReply));
      return (await Promise.all(parts)).flat();
    }
    return new Promise((resolve, reject) => {
      const batch = this.#batchOf(routingKey);
      batch.releases.push({ items, lateReply, resolve, reject });
      this.#onAdded(batch, items.length);
    });
  }

  #batchOf(routingKey: string): Batch {
    for (const batch of this.#batches) if (batch.routingKey === routingKey) return batch;
    const batch: Batch = { routingKey, releases: [], claims: [], itemCount: 0 };
    this.#batches.push(batch);
    return batch;
  }

  #onAdded(batch: Batch, itemCount: number): void {
    batch.itemCount += itemCount;
    if (batch.itemCount >= ITEMS_PER_COMMAND) {
      this.#batches = this.#batches.filter((other) => other !== batch);
      this.#sendBatch(batch);
    } else if (!this.#isScheduled) {
      this.#isScheduled = true;
      process.nextTick(() => this.sendAll());
    }
  }

  /** Sends what was collected, at once. */
  sendAll(): void {
    this.#isScheduled = false;
    const batches = this.#batches;
    this.#batches = [];
    for (const batch of batches) this.#sendBatch(batch);
  }

  #sendBatch({ routingKey, releases, claims }: Batch): void {
    if (!this.#isSplit && releases.length > 0 && claims.length > 0) {
      this.#sendCalls(routingKey, [...releases, ...claims]);
      return;
    }
    if (releases.length > 0) this.#sendCalls(routingKey, releases);
    if (claims.length > 0) this.#sendCalls(routingKey, claims);
  }

  #sendCalls(routingKey: string, calls: readonly Call[]): void {
    const [first] = calls as [Call];
    const items = calls.length === 1 ? first.items : calls.flatMap((call) => call.items);
    const lateReply = calls.length === 1 ? first.lateReply : combineLateReplies(calls);
    const { epoch } = this.#connection;
    const args = [...this.#toHeader(routingKey), ...items];
    rejectOnThrow(() => this.#connection.runScript(TURN, routingKey, args, lateReply))
      .then((reply) => this.#settle(calls, items.length, String(reply), epoch))
      .catch((error: unknown) => {
        for (const { reject } of calls) reject(error);
      });
  }

  /** @throws Error for an unexpected reply */
  #settle(calls: readonly Call[], itemCount: number, reply: string, epoch: number): void {
    const lines = reply.split("\n");
    // "QUEUED": the client is inside a MULTI of its user
    if (lines.length < itemCount || !/^[hrwnpfe01](?: |\n|$)/.test(reply))
      throw new Error(`redis: the store answered for ${lines.length} of ${itemCount} items: ${reply.slice(0, 20)}`);
    const isAnswer = epoch === this.#connection.epoch;
    for (let index = itemCount; index < lines.length; index++) this.#onPush(lines[index] as string, isAnswer);
    let position = 0;
    for (const call of calls) {
      const answers = lines.slice(position, position + call.items.length);
      position += call.items.length;
      const failure = answers.find((answer) => answer.startsWith("e "));
      if (failure === undefined) call.resolve(answers);
      else call.reject(sanitizeError(new Error(failure.slice(2))));
    }
  }
}

/** Calls each LateReply of these calls once, even if several calls share it. */
function combineLateReplies(calls: readonly Call[]): LateReply {
  const all = (): Set<LateReply> => new Set(calls.map(({ lateReply }) => lateReply));
  return {
    onTimeout: () => {
      for (const lateReply of all()) lateReply.onTimeout();
    },
    onLateReply: () => {
      for (const lateReply of all()) lateReply.onLateReply();
    },
  };
}
