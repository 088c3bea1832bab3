/**
 * Our own server as a store: calls become frames, pushed frames become notify(). The driver remembers what it was told
 * last of each claim, so that it can tell a server that has started anew (design A.5).
 */

import type { Clock } from "../../clock.ts";
import { systemClock } from "../../clock.ts";
import { SlotMap } from "../../core/slot-map.ts";
import { newId } from "../../ids.ts";
import * as frames from "../../protocol/frames.ts";
import type { SeenState, ServerHello } from "../../protocol/hello.ts";
import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  ListFilter,
  Notify,
  RevokeTarget,
  Traits,
} from "../../spi/driver.ts";
import { Connection } from "./connection.ts";
import { greeting } from "./greeting.ts";
import { chunksOf, Known, reclaimable } from "./known.ts";
import { register } from "./tether.ts";
import type { Address, Dial } from "./wire.ts";
import { netDial } from "./wire.ts";

/** How to reach a lock server: by `path`, by `host` and `port`, or by a `dial` of the caller's. */
export interface ServerOptions {
  /** A Unix socket. */
  readonly path?: string;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 7420. */
  readonly port?: number;
  /** How long the server may take to be reached for the first time, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** For claims that bring no label of their own. */
  readonly label?: string;
  /** What the server knows us by, or how to get what is good now; a secret. Default: nothing. */
  readonly credential?: string | (() => string);
  /** Called, and awaited, before each attempt to connect; it may start the server. */
  readonly prepare?: () => Promise<void>;
  /** Time; for tests. Default: the machine's. */
  readonly clock?: Clock;
  /** From 0 to 1; for tests. Default Math.random. */
  readonly random?: () => number;
  /** Makes connections; for tests. Default: Node's sockets. */
  readonly dial?: Dial;
}

/** What a server of this version says of itself, until it has. */
const TRAITS: Traits = {
  lease: { claim: true, sessionMs: 30_000 },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  survives: "restart",
};

/** Ids in one frame. */
const IDS_A_FRAME = 2_000;

/**
 * A driver for Holdfast's own lock server. One connection carries all claims; what one turn of the event loop asks for
 * goes out as one line. It reconnects by itself as long as it has claims or calls.
 */
export function server(options: ServerOptions): Driver {
  const address = addressOf(options);
  const dial = options.dial ?? netDial(address);
  const driver = new ServerDriver(options, dial);
  register(driver, { session: driver.session, address, options, dial });
  return driver;
}

class ServerDriver implements Driver {
  readonly name = "server";
  readonly session: string = newId();
  traits: Traits = TRAITS;
  readonly #clock: Clock;
  readonly #connection: Connection;
  readonly #label: string;
  readonly #known = new SlotMap<ClaimId, Known>();
  /** Live claims that end with the session. */
  #sessionClaims = 0;
  #notify: Notify = () => undefined;
  #isOpen = false;
  /** Of the last server we met. */
  #seen: SeenState | null = null;
  /** The start of the server that has answered all we had to tell it; null: the last one we met has not. */
  #told: string | null = null;

  constructor(options: ServerOptions, dial: Dial) {
    const { label = "", clock = systemClock, random = Math.random, connectTimeoutMs = 5_000, prepare } = options;
    this.#clock = clock;
    this.#label = label;
    this.#connection = new Connection(
      { dial, prepare, clock, random, connectTimeoutMs },
      {
        hello: () => greeting(options, this.session, this.#seen),
        up: (hello, previous) => this.#up(hello, previous),
        pushed: (frame) => this.#pushed(frame),
        isNeeded: () => this.#known.size > 0,
        mustSpeak: () => this.#sessionClaims > 0,
      },
    );
  }

  async open(notify: Notify): Promise<void> {
    this.#notify = notify;
    await this.#connection.open();
    this.#isOpen = true;
  }

  claim(claim: Claim): Promise<Answer> {
    const sentAt = this.#clock.now();
    const known = this.#know(claim);
    return this.#connection.call(
      (n) => frames.encodeClaim(n, claim, this.#label),
      (raw) => this.#learn(known, sentAt, frames.decodeAnswer(raw)),
    );
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const start = this.#connection.hello?.start;
    // while there is no connection: what is known will be reclaimed before this is sent
    const familiar = (known: Known): boolean => known.start !== null && (start === undefined || known.start === start);
    const sentAt = this.#clock.now();
    const all = claims.map((claim) => this.#know(claim));
    const parts = chunksOf(all, IDS_A_FRAME).map((part) =>
      this.#connection.call(
        (n) => frames.encodeRenew(n, part, familiar, this.#label),
        (raw) => {
          const answers = frames.decodeList(raw, part.length, frames.decodeRenewed);
          return answers.map((answer, at) => answer && this.#learn(part[at] as Known, sentAt, answer));
        },
      ),
    );
    return (await Promise.all(parts)).flat();
  }

  async release(claims: readonly Claim[], unanswered?: ReadonlySet<ClaimId>): Promise<readonly boolean[]> {
    // held back until there is a connection: a new start of the server must hear of the claims first, or it would say
    // that they were not there
    const isHeldBack = this.#connection.hello === null;
    for (const { id } of claims) {
      const known = this.#known.get(id);
      if (known !== undefined) known.gone = true;
      if (!isHeldBack) this.#forget(id);
    }
    try {
      return await this.#flags(claims, (n, part) => frames.encodeRelease(n, part, unanswered));
    } finally {
      if (isHeldBack) for (const { id } of claims) this.#forget(id);
    }
  }

  async detach(claims: readonly Claim[], leftMs?: number): Promise<readonly boolean[]> {
    const done = await this.#flags(claims, (n, part) => frames.encodeDetach(n, part, leftMs));
    for (const [at, { id }] of claims.entries()) if (done[at] === true) this.#forget(id);
    return done;
  }

  async revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
    return this.#connection.call(
      (n) => frames.encodeRevoke(n, targets),
      (raw) => frames.decodeList(raw, targets.length, frames.decodeFlag),
    );
  }

  async list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]> {
    signal?.throwIfAborted();
    const encode = (n: number): string => frames.encodeList(n, filter, max, after);
    const { views, more } = await this.#connection.call(encode, frames.decodePage);
    const last = views.at(-1);
    if (!more || last === undefined || views.length >= max) return views;
    return [...views, ...(await this.list(filter, max - views.length, last.tag, signal))];
  }

  async close(): Promise<void> {
    this.#notify = () => undefined;
    this.#isOpen = false;
    this.#known.clear();
    this.#connection.close();
  }

  async #flags(claims: readonly Claim[], encode: (n: number, part: readonly Claim[]) => string): Promise<boolean[]> {
    const flagsOf = (part: readonly Claim[]): Promise<boolean[]> =>
      this.#connection.call(
        (n) => encode(n, part),
        (raw) => frames.decodeList(raw, part.length, frames.decodeFlag),
      );
    // every release of a lock comes by here, and nearly all fit into one frame
    if (claims.length > 0 && claims.length <= IDS_A_FRAME) return flagsOf(claims);
    return (await Promise.all(chunksOf(claims, IDS_A_FRAME).map(flagsOf))).flat();
  }

  #know(claim: Claim): Known {
    let known = this.#known.get(claim.id);
    if (known !== undefined) return known;
    known = new Known(claim);
    this.#known.add(claim.id, known);
    if (claim.ttlMs === "session") this.#sessionClaims++;
    return known;
  }

  #forget(id: ClaimId): void {
    const known = this.#known.get(id);
    if (known === undefined) return;
    known.gone = true;
    this.#known.delete(id);
    if (known.claim.ttlMs === "session") this.#sessionClaims--;
    this.#connection.watch();
  }

  /** By how much the wall clock is ahead of ours. */
  #aheadMs(): number {
    return this.#clock.wall() - this.#clock.now();
  }

  /** Who is told to go keeps the place until it has let go: a new start of the server must hear of that, too. */
  #over({ claim, answer }: Known, { reason }: Extract<Answer, { state: "none" }>): void {
    if (answer?.state === "held" && (reason === "revoked" || reason === "maxHold")) return;
    this.#forget(claim.id);
  }

  /** What the server said of a claim, in answer to a call sent then. */
  #learn(known: Known, sentAt: number, answer: frames.WireAnswer): Answer {
    if (known.gone) return answer;
    if (answer.state === "none") this.#over(known, answer);
    else known.learn(answer, sentAt, this.#connection.hello as ServerHello, this.#aheadMs());
    return answer;
  }

  #pushed([verb, id, raw]: readonly unknown[]): void {
    if (typeof id !== "string" || (verb !== "push" && verb !== "nudge")) return;
    const known = this.#known.get(id);
    if (known === undefined || known.gone) return;
    if (verb === "nudge") return this.#notify(id);
    const answer = frames.decodeAnswer(raw);
    if (answer.state === "none") this.#over(known, answer);
    else known.push(answer);
    this.#notify(id, answer);
  }

  #up(hello: ServerHello, previous: string | null): void {
    if (!this.#isOpen) this.traits = hello.traits;
    this.#seen = hello.state ? { ...hello.state, start: hello.start } : null;
    if (previous === null) {
      this.#told = hello.start;
      return;
    }
    if (this.#told === hello.start) return this.#notify(null);
    this.#told = null;
    const now = this.#clock.now();
    for (const known of this.#untold(hello)) {
      // what its own lease has ended is nobody's to ask for; the core has lost it, too
      if (known.answer !== null && !known.stands(now, hello, this.#aheadMs())) this.#forget(known.claim.id);
    }
    this.#reclaim(hello, now);
  }

  /** What this start has not answered for. The rest it knows already, if a connection broke before all was answered. */
  #untold({ start }: ServerHello): Known[] {
    return [...this.#known.values()].filter((known) => known.start !== start);
  }

  /** A new start of the server: it must hear what we had before anything else. */
  #reclaim(hello: ServerHello, now: number): void {
    const parts = reclaimable(this.#untold(hello), now, this.#aheadMs());
    const replies = parts.map((part, at) => {
      const encode = (n: number): string => frames.encodeReclaim(n, part, this.#label, at === parts.length - 1);
      return this.#connection.call(encode, (raw) => {
        const answers = frames.decodeList(raw, part.length, frames.decodeRenewed);
        for (const [index, { claim }] of part.entries()) {
          const known = this.#known.get(claim.id);
          const answer = answers[index];
          if (known === undefined || answer === undefined) continue;
          if (answer.state === "none") this.#forget(claim.id);
          else known.start = hello.start;
        }
      });
    });
    const ask = (): void => this.#notify(null);
    const told = (): void => {
      this.#told = hello.start;
      ask();
    };
    // if it failed the core asks all the same, and is told; the next connection tells again
    Promise.all(replies).then(told, ask);
  }
}

function addressOf({ path, host, port, dial }: ServerOptions): Address {
  if (path !== undefined) {
    if (host !== undefined || port !== undefined) throw new TypeError("server: give path, or host and port, not both");
    return { path };
  }
  if (host === undefined && port === undefined && dial === undefined) {
    throw new TypeError("server: give path, or host and port");
  }
  return { host: host ?? "127.0.0.1", port: port ?? 7420 };
}
