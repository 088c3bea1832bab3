/**
 * Collects the claims and releases of one turn of the event loop into one command: on a Cluster one for each bucket.
 *
 * Invariants
 * - A command is sent at the end of the callback in which its first call was made; of a call made in a microtask, when the
 *   microtasks have run. A lone call waits for nothing.
 * - Releases stand before claims, so that a claim finds what this process releases in the same turn.
 * - Each call gets its own answer or error. If the command itself fails, or is late, so are all of its calls.
 */

import { chunk } from "../../util/chunk.ts";
import type { LateReply } from "./connection.ts";
import { sanitizeError } from "./errors.ts";

/** The most items of a command: the server executes nothing else meanwhile. */
const MAX_ITEMS = 512;

/** Sends one command with these items of turn.lua. */
export type SendTurn = (routingKey: string, items: readonly string[], lateReply: LateReply) => Promise<unknown>;

interface Call {
  readonly item: string;
  readonly lateReply: LateReply;
  readonly resolve: (answer: string) => void;
  readonly reject: (error: unknown) => void;
}

interface Turn {
  readonly releases: Call[];
  readonly claims: Call[];
}

export class Turns {
  readonly #send: SendTurn;
  readonly #onPush: (message: string, isAnswer: boolean) => void;
  /** Counts the breaks of the connection. */
  readonly #readEpoch: () => number;
  /** By routing key: the calls of this turn. */
  readonly #turns = new Map<string, Turn>();
  /** Whether claims and releases go in commands of their own: an error that concerns claims only fails no release then. */
  readonly #isSplit: boolean;

  constructor(
    send: SendTurn,
    onPush: (message: string, isAnswer: boolean) => void,
    readEpoch: () => number,
    isSplit: boolean,
  ) {
    this.#send = send;
    this.#onPush = onPush;
    this.#readEpoch = readEpoch;
    this.#isSplit = isSplit;
  }

  /** Sends an item that makes a claim. Resolves to its answer as turn.lua describes it. */
  claim(routingKey: string, item: string, lateReply: LateReply): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#turnOf(routingKey).claims.push({ item, lateReply, resolve, reject });
    });
  }

  /** Sends an item that releases a claim. */
  release(routingKey: string, item: string, lateReply: LateReply): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#turnOf(routingKey).releases.push({ item, lateReply, resolve, reject });
    });
  }

  #turnOf(routingKey: string): Turn {
    let turn = this.#turns.get(routingKey);
    if (turn === undefined) {
      if (this.#turns.size === 0) process.nextTick(() => this.#sendAll());
      turn = { releases: [], claims: [] };
      this.#turns.set(routingKey, turn);
    }
    return turn;
  }

  #sendAll(): void {
    const turns = [...this.#turns];
    this.#turns.clear();
    for (const [routingKey, { releases, claims }] of turns) {
      const groups = this.#isSplit ? [releases, claims] : [releases.length === 0 ? claims : [...releases, ...claims]];
      for (const group of groups) {
        if (group.length <= MAX_ITEMS && group.length > 0) void this.#sendCalls(routingKey, group);
        else for (const calls of chunk(group, MAX_ITEMS)) void this.#sendCalls(routingKey, calls);
      }
    }
  }

  async #sendCalls(routingKey: string, calls: readonly Call[]): Promise<void> {
    const lateReply: LateReply = {
      onTimeout: () => {
        for (const call of new Set(calls.map((one) => one.lateReply))) call.onTimeout();
      },
      onLateReply: () => {
        for (const call of new Set(calls.map((one) => one.lateReply))) call.onLateReply();
      },
    };
    try {
      const epoch = this.#readEpoch();
      const reply = String(
        await this.#send(
          routingKey,
          calls.map(({ item }) => item),
          lateReply,
        ),
      );
      const lines = reply.split("\n");
      // "QUEUED": the client is inside a MULTI of its user
      if (lines.length < calls.length || !/^[hrwnpfe01]( |$)/.test(lines[0] as string))
        throw new Error(
          `redis: the store answered for ${lines.length} of ${calls.length} items: ${reply.slice(0, 20)}`,
        );
      const isAnswer = epoch === this.#readEpoch();
      for (const push of lines.slice(calls.length)) this.#onPush(push, isAnswer);
      for (let index = 0; index < calls.length; index++) {
        const { resolve, reject } = calls[index] as Call;
        const answer = lines[index] as string;
        if (answer.startsWith("e ")) reject(sanitizeError(new Error(answer.slice(2))));
        else resolve(answer);
      }
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
  }
}
