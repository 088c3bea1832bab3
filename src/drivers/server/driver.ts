/**
 * Holdfast's own server as a store: calls become frames, pushed frames become events. The driver remembers the last
 * answer to each claim and reports it to a restarted server, so that locks survive the restart.
 */

import type { Connector } from "../../net/transport.ts";
import * as frames from "../../protocol/frames.ts";
import type { LastSeenState, ServerHello } from "../../protocol/handshake.ts";
import { MIN_TOKEN_LIMIT } from "../../protocol/handshake.ts";
import type {
  Answer,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  RevokeTarget,
  Traits,
} from "../../spi/driver.ts";
import { chunk } from "../../util/chunk.ts";
import type { Clock } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import type { Duration } from "../../util/duration.ts";
import { randomId } from "../../util/ids.ts";
import type { ServerAddress } from "../../util/server-url.ts";
import { SlotMap } from "../../util/slot-map.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import type { ServerEndpoint } from "./address.ts";
import { createSocketConnector } from "./address.ts";
import { Connection } from "./connection.ts";
import { ClaimMemory, toReclaimBatches } from "./reclaim.ts";

/** How to reach a lock server: by `path`, by `host` and `port`, or by a custom `connector`. */
export interface ServerOptions {
  /** A Unix socket. */
  readonly path?: string;
  /** Default 127.0.0.1. */
  readonly host?: string;
  /** Default 7420. */
  readonly port?: number;
  /** How long open() tries to reach the server. Default 5 s. */
  readonly connectTimeout?: Duration;
  /** open() rejects at the first failure, for a caller that decides by its kind whether to try again. Default false. */
  readonly opensOnce?: boolean;
  /** The label of claims that have none. */
  readonly label?: string;
  /** The client's credential, or a function that returns the current one; a secret. Default: none. */
  readonly credential?: string | (() => string);
  /** Called, and awaited, before each attempt to connect; it may start the server. */
  readonly beforeConnect?: () => Promise<void>;
  /** The clock; for tests. Default: the system's. */
  readonly clock?: Clock;
  /** From 0 to 1; for tests. Default Math.random. */
  readonly random?: () => number;
  /** Makes connections; for tests. Default: Node's sockets. */
  readonly connector?: Connector;
}

/** How many ids one frame carries at most. */
const MAX_IDS_PER_FRAME = 2_000;

/**
 * A driver for Holdfast's own lock server. One connection carries all claims; the calls of one turn of the event loop
 * are sent as one line. The driver reconnects by itself as long as it has claims or calls.
 */
export function lockServer(options: ServerOptions): Driver {
  return new ServerDriver(options);
}

class ServerDriver implements Driver {
  readonly name = "server";
  /** For tools that open connections of their own. */
  readonly serverEndpoint: ServerEndpoint;
  readonly #clock: Clock;
  readonly #connection: Connection;
  readonly #label: string;
  readonly #claims = new SlotMap<ClaimId, ClaimMemory>();
  /** Live claims that end with the session. */
  #sessionClaimCount = 0;
  /** Of all claims since there was none, also of those that have ended. */
  #shortestLeaseMs = Number.POSITIVE_INFINITY;
  /** Live claims that are not in use here. */
  #idleClaimCount = 0;
  /** null: closed. */
  #events: DriverEvents | null = null;
  /** The state of the last server that said hello. */
  #lastSeenState: LastSeenState | null = null;
  /** The server run that has answered all reclaims; null: the last server has not answered them all. */
  #reclaimedRunId: string | null = null;

  constructor(options: ServerOptions) {
    const { label = "", clock = systemClock, random = Math.random } = options;
    const { beforeConnect, credential, opensOnce = false } = options;
    const address = resolveAddress(options);
    const connector = options.connector ?? createSocketConnector(address);
    const sessionId = randomId();
    const connectTimeoutMs = toConnectTimeoutMs(options.connectTimeout);
    const timing = { connectTimeoutMs, opensOnce, clock, random };
    const connection = { connector, beforeConnect, sessionId, label, credential, ...timing };
    this.serverEndpoint = { address, connection };
    this.#clock = clock;
    this.#label = label;
    this.#connection = new Connection(connection, {
      lastSeenState: () => this.#lastSeenState,
      onConnected: (hello, previousRunId) => this.#onConnected(hello, previousRunId),
      onDisconnected: () => this.#events?.disconnected(),
      onPush: (frame) => this.#onPush(frame),
      isNeeded: () => this.#claims.size > this.#idleClaimCount,
      needsHeartbeat: () => this.#sessionClaimCount > 0,
      shortestLeaseMs: () => this.#shortestLeaseMs,
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    this.#events = events;
    return (await this.#connection.open()).traits;
  }

  claim(claim: Claim): Promise<Answer> {
    const sentAt = this.#clock.now();
    const memory = this.#track(claim);
    return this.#connection.call(
      (callId) => frames.encodeClaim(callId, claim, this.#encoding()),
      (result) => this.#recordAnswer(memory, sentAt, frames.decodeAnswer(result)),
    );
  }

  async renew(claims: readonly Claim[], tokenCounts: readonly number[] = []): Promise<readonly (Answer | undefined)[]> {
    const runId = this.#connection.hello?.runId;
    // without a connection: claims that have an answer will be reclaimed before this is sent
    const isKnownToServer = (memory: ClaimMemory): boolean =>
      memory.runId !== null && (runId === undefined || memory.runId === runId);
    const sentAt = this.#clock.now();
    const memories = claims.map((claim) => this.#track(claim));
    const calls = chunk(memories, MAX_IDS_PER_FRAME).map((batch, batchIndex) => {
      const start = batchIndex * MAX_IDS_PER_FRAME;
      const counts = tokenCounts.slice(start, start + batch.length);
      return this.#connection.call(
        (callId) => frames.encodeRenew(callId, batch, isKnownToServer, this.#encoding(), counts),
        (result) => {
          const answers = frames.decodeArray(result, batch.length, frames.decodeRenewAnswer);
          return answers.map(
            (answer, index) => answer && this.#recordAnswer(batch[index] as ClaimMemory, sentAt, answer),
          );
        },
      );
    });
    return (await Promise.all(calls)).flat();
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    // Without a connection the release waits. Reclaim the claims first: a restarted server would otherwise report that
    // they did not exist.
    const isDisconnected = this.#connection.hello === null;
    for (const { claim } of releases) {
      const memory = this.#claims.get(claim.id);
      if (memory !== undefined) memory.isReleased = true;
      // a release keeps no process alive
      if (isDisconnected) this.setIdle(claim, true);
      else this.#untrack(claim.id);
    }
    try {
      return await this.#callForFlags(releases, frames.encodeRelease);
    } finally {
      if (isDisconnected) for (const { claim } of releases) this.#untrack(claim.id);
    }
  }

  setIdle({ id }: Claim, isIdle: boolean): void {
    const memory = this.#claims.get(id);
    if (memory === undefined || memory.isIdle === isIdle) return;
    memory.isIdle = isIdle;
    this.#idleClaimCount += isIdle ? 1 : -1;
    this.#connection.updateDemand();
  }

  forget({ id }: Claim): void {
    this.#untrack(id);
  }

  async detach(claims: readonly Claim[], remainingMs?: number): Promise<readonly boolean[]> {
    const detached = await this.#callForFlags(claims, (callId, batch) =>
      frames.encodeDetach(callId, batch, remainingMs),
    );
    for (const [index, { id }] of claims.entries()) if (detached[index] === true) this.#untrack(id);
    return detached;
  }

  async suspend(claims: readonly Claim[], isSuspended: boolean): Promise<void> {
    for (const { id } of claims) {
      const memory = this.#claims.get(id);
      if (memory !== undefined) memory.isSuspended = isSuspended;
    }
    const calls = chunk(claims, MAX_IDS_PER_FRAME).map((batch) =>
      this.#connection.call(
        (callId) => frames.encodeSuspend(callId, batch, isSuspended),
        () => undefined,
      ),
    );
    await Promise.all(calls);
  }

  /** A new connection ends the suspension of all claims of its session. */
  #repeatSuspensions(): void {
    const claims = [...this.#claims.values()].filter(({ isSuspended }) => isSuspended).map(({ claim }) => claim);
    // an error means that this connection has ended, too
    this.suspend(claims, true).catch(() => undefined);
  }

  async revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
    return this.#connection.call(
      (callId) => frames.encodeRevoke(callId, targets),
      (result) => frames.decodeArray(result, targets.length, frames.decodeFlag),
    );
  }

  /** The server's pages may be shorter than `max`: it bounds their text. */
  async list(query: ListQuery, { max, after, signal }: ListOptions): Promise<Page<ClaimView>> {
    const items: ClaimView[] = [];
    let next = after;
    do {
      signal?.throwIfAborted();
      const encode = (callId: number): string => frames.encodeList(callId, query, max - items.length, next);
      const page = await this.#connection.call(encode, frames.decodePage);
      items.push(...page.items);
      next = page.next;
    } while (next !== undefined && items.length < max);
    return next === undefined ? { items } : { items, next };
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#claims.clear();
    this.#idleClaimCount = 0;
    this.#connection.close();
  }

  async #callForFlags<T>(
    items: readonly T[],
    encode: (callId: number, batch: readonly T[]) => string,
  ): Promise<boolean[]> {
    const callBatch = (batch: readonly T[]): Promise<boolean[]> =>
      this.#connection.call(
        (callId) => encode(callId, batch),
        (result) => frames.decodeArray(result, batch.length, frames.decodeFlag),
      );
    // fast path: every release of a lock passes here, and nearly all fit into one frame
    if (items.length > 0 && items.length <= MAX_IDS_PER_FRAME) return callBatch(items);
    return (await Promise.all(chunk(items, MAX_IDS_PER_FRAME).map(callBatch))).flat();
  }

  #track(claim: Claim): ClaimMemory {
    let memory = this.#claims.get(claim.id);
    if (memory !== undefined) return memory;
    memory = new ClaimMemory(claim);
    this.#claims.add(claim.id, memory);
    if (claim.ttlMs === "session") this.#sessionClaimCount++;
    else this.#shortestLeaseMs = Math.min(this.#shortestLeaseMs, claim.ttlMs);
    return memory;
  }

  #untrack(id: ClaimId): void {
    const memory = this.#claims.get(id);
    if (memory === undefined) return;
    memory.isReleased = true;
    this.#claims.delete(id);
    if (memory.claim.ttlMs === "session") this.#sessionClaimCount--;
    if (memory.isIdle) this.#idleClaimCount--;
    if (this.#claims.size === 0) this.#shortestLeaseMs = Number.POSITIVE_INFINITY;
    this.#connection.updateDemand();
  }

  /** Without a connection: what every server accepts, since the next one may be of another version. */
  #encoding(): frames.ClaimEncoding {
    return { label: this.#label, maxTokens: this.#connection.hello?.limits.tokens ?? MIN_TOKEN_LIMIT };
  }

  /** The wall clock minus the monotonic clock. */
  #wallOffsetMs(): number {
    return this.#clock.wall() - this.#clock.now();
  }

  /** A revoked holder keeps its entry until it releases, so the claim must still be reported after a server restart. */
  #onNone({ claim, lastAnswer }: ClaimMemory, { reason }: Extract<Answer, { state: "none" }>): void {
    if (lastAnswer?.state === "held" && (reason === "revoked" || reason === "maxHold")) return;
    this.#untrack(claim.id);
  }

  /** Records the answer to a call that was sent at `sentAt`. */
  #recordAnswer(memory: ClaimMemory, sentAt: number, answer: frames.WireAnswer): Answer {
    if (memory.isReleased) return answer;
    if (answer.state === "none") this.#onNone(memory, answer);
    else memory.recordAnswer(answer, sentAt, this.#connection.hello as ServerHello, this.#wallOffsetMs());
    return answer;
  }

  #onPush([verb, id, result]: readonly unknown[]): void {
    if (typeof id !== "string" || (verb !== "push" && verb !== "recheck" && verb !== "recalled")) return;
    const memory = this.#claims.get(id);
    if (memory === undefined || memory.isReleased) return;
    if (verb === "recheck") return this.#events?.recheck(id);
    if (verb === "recalled") return this.#events?.recalled(id);
    const answer = frames.decodeAnswer(result);
    if (answer.state === "none") this.#onNone(memory, answer);
    else memory.recordPush(answer);
    this.#events?.pushed(id, answer);
  }

  #onConnected(hello: ServerHello, previousRunId: string | null): void {
    this.#lastSeenState = hello.state ? { ...hello.state, runId: hello.runId } : null;
    if (previousRunId === null) {
      this.#reclaimedRunId = hello.runId;
      return;
    }
    if (this.#reclaimedRunId === hello.runId) {
      this.#repeatSuspensions();
      return this.#events?.reconnected();
    }
    this.#reclaimedRunId = null;
    const now = this.#clock.now();
    for (const memory of this.#claimsToReclaim(hello)) {
      // a claim whose lease has expired by this clock cannot be reclaimed; the client has already reported it lost
      if (memory.lastAnswer !== null && !memory.isReclaimable(now, hello, this.#wallOffsetMs()))
        this.#untrack(memory.claim.id);
    }
    this.#reclaim(hello, now);
    this.#repeatSuspensions();
  }

  /**
   * The claims that this server run has not answered yet. It has answered others if a connection broke during the
   * reclaim.
   */
  #claimsToReclaim({ runId }: ServerHello): ClaimMemory[] {
    return [...this.#claims.values()].filter((memory) => memory.runId !== runId);
  }

  /** Reports the remembered claims to a restarted server, before any other call. */
  #reclaim(hello: ServerHello, now: number): void {
    const batches = toReclaimBatches(this.#claimsToReclaim(hello), now, this.#wallOffsetMs());
    const replies = batches.map((batch, batchIndex) => {
      const encode = (callId: number): string =>
        frames.encodeReclaim(callId, batch, this.#encoding(), batchIndex === batches.length - 1);
      return this.#connection.call(encode, (result) => {
        const answers = frames.decodeArray(result, batch.length, frames.decodeRenewAnswer);
        for (const [index, { claim }] of batch.entries()) {
          const memory = this.#claims.get(claim.id);
          const answer = answers[index];
          if (memory === undefined || answer === undefined) continue;
          if (answer.state === "none") this.#untrack(claim.id);
          else memory.runId = hello.runId;
        }
      });
    });
    const recheckAll = (): void => this.#events?.reconnected();
    const onReclaimed = (): void => {
      this.#reclaimedRunId = hello.runId;
      recheckAll();
    };
    // after a failure the client still rechecks its claims and sees the outcome; the next connection reclaims again
    Promise.all(replies).then(onReclaimed, recheckAll);
  }
}

function resolveAddress({ path, host, port, connector }: ServerOptions): ServerAddress {
  if (path !== undefined) {
    if (host !== undefined || port !== undefined) throw new TypeError("server: give path, or host and port, not both");
    return { path };
  }
  if (host === undefined && port === undefined && connector === undefined) {
    throw new TypeError("server: give path, or host and port");
  }
  return { host: host ?? "127.0.0.1", port: port ?? 7420 };
}
