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

import type { Link, Side } from "./shapes.ts";

/** How many replicas must have a grant before it is told, and how long they are waited for. */
export interface ReplicaTerms {
  readonly atLeast: number;
  readonly withinMs: number;
}

export interface ReplicasOptions {
  readonly link: Link;
  readonly terms: ReplicaTerms;
  /** The name of a mark beside this route. */
  readonly markOf: (route: string) => string;
  readonly send: (words: string[], route: string) => Promise<unknown>;
  readonly within: <T>(work: Promise<T>, what: string) => Promise<T>;
}

/**
 * Its first write is one that a full store does not refuse: whoever holds must be able to renew. The mark is no KEY, since a
 * client library may put a prefix before those.
 */
const MARK = "redis.call('DEL', ARGV[1]) redis.call('SET', ARGV[1], '1', 'PX', ARGV[2])";
/** How long a mark stays that nobody removes, in milliseconds. */
const MARK_MS = "10000";

interface Lane {
  /** Settles when the round under way is over. */
  last: Promise<unknown>;
  next: { readonly routes: Set<string>; readonly done: Promise<void> } | null;
}

export class Replicas {
  readonly #options: ReplicasOptions;
  /** By the names of nodes. */
  readonly #lanes = new Map<string, Lane>();
  readonly #sides = new Map<string, Promise<Side>>();
  #isOver = false;

  constructor(options: ReplicasOptions) {
    this.#options = options;
  }

  /** Settles when enough replicas have all that was written this way. @throws Error if they do not say so in time */
  have(route: string): Promise<void> {
    const node = this.#options.link.nodeOf(route);
    if (node === null) return Promise.reject(new Error("redis: nobody is known to have this slot"));
    const lane = this.#lanes.get(node) ?? { last: Promise.resolve(), next: null };
    this.#lanes.set(node, lane);
    if (lane.next === null) {
      const routes = new Set<string>();
      const done = lane.last.then(() => {
        lane.next = null;
        return this.#round(node, [...routes]);
      });
      lane.next = { routes, done };
      lane.last = done.catch(() => undefined); // whoever asked is told
    }
    lane.next.routes.add(route);
    return lane.next.done;
  }

  end(): void {
    this.#isOver = true;
    for (const node of [...this.#sides.keys()]) this.#drop(node);
  }

  async #round(node: string, routes: readonly string[]): Promise<void> {
    const { atLeast, withinMs } = this.#options.terms;
    const having = await this.#acknowledged(node, routes).catch((error: unknown) => {
      this.#drop(node); // a new connection finds the right server
      throw error;
    });
    if (having >= atLeast) return;
    throw new Error(`redis: ${having} of ${atLeast} replicas acknowledged within ${withinMs} ms`);
  }

  async #acknowledged(node: string, routes: readonly string[]): Promise<number> {
    const { link, terms, markOf, send, within } = this.#options;
    const marks = routes.map((route) => markOf(route));
    const words = (route: string, at: number): string[] => ["EVAL", MARK, "1", route, marks[at] as string, MARK_MS];
    await Promise.all(routes.map((route, at) => send(words(route, at), route)));
    if (this.#isOver) throw new Error("redis: the driver was closed");
    const known = this.#sides.get(node);
    const made = known ?? Promise.resolve(link.side(routes[0] as string, () => this.#drop(node)));
    this.#sides.set(node, made);
    const side = await within(made, "connection for replicas");
    const removed = marks.map((mark) => side.send(["DEL", mark]));
    const having = side.send(["WAIT", String(terms.atLeast), String(terms.withinMs)]);
    const said = await within(Promise.all([having, ...removed]), "answer about replicas");
    if (said.slice(1).some((one) => Number(one) !== 1)) {
      throw new Error("redis: what was written is not where replicas were asked about");
    }
    return Number(said[0]);
  }

  #drop(node: string): void {
    const side = this.#sides.get(node);
    this.#sides.delete(node);
    side?.then(
      (made) => made.end(),
      () => undefined, // it was never there
    );
  }
}
