/**
 * Advisory locks of a database as a store, without a table: a lock belongs to a session of the server, and ends with
 * it. This file is what is the same for all databases; dialect.ts says what one must do.
 *
 * A claim is tried on the connection that all locks share. If the lock is not free, the first waiting claim of this
 * process waits for it on a connection of its own, which keeps the lock until it is released; the others wait behind it
 * in this process.
 *
 * Invariants
 * I1 One lock has at most one exclusive claim of this process on the shared session: LockQueue.admits(), within
 *    LockQueue.serialize().
 * I2 A claim is held only while its session is alive (Session). When the session ends, its holders are told at once.
 * I3 A lock that no claim wants any more is unlocked before release() resolves, or its session is closed.
 * I4 After an error that may have left a lock behind, the session is closed: the server frees what it had.
 */

import { isFatalError, StoreRefusedError } from "../../../errors.ts";
import type {
  Answer,
  Check,
  Claim,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  Traits,
} from "../../../spi/driver.ts";
import type { Clock, Timer } from "../../../util/clock.ts";
import { systemClock } from "../../../util/clock.ts";
import { toConnectTimeoutMs } from "../../connect-timeout.ts";
import { formatWarnings, resolveWarn } from "../../warnings.ts";
import type { ClientSource } from "../clients/source.ts";
import type { SqlClient } from "../clients/types.ts";
import { toOpenError } from "../database-error.ts";
import { openDatabase } from "../open.ts";
import { Connections } from "./connections.ts";
import type { AdvisoryDialect } from "./dialect.ts";
import type { Entry, LockQueue, Wait } from "./lock-queue.ts";
import type { AdvisoryOptions } from "./options.ts";
import { DEFAULT_MAX_WAIT_CONNECTIONS, DEFAULT_SESSION_MS } from "./options.ts";
import { EXPIRED, NONE, OwnClaims } from "./own-claims.ts";
import type { Session, SessionContext } from "./session.ts";
import { createSessionContext } from "./session.ts";

interface OpenConnections {
  readonly connections: Connections;
  /** Closes them, and the client if it is the driver's. */
  readonly close: () => Promise<void>;
}

/** Why a client cannot be used. */
const SINGLE_CONNECTION =
  "client must be a pool that shows its settings: the driver opens connections of its own, with the same settings";

/**
 * Creates the driver. The options were validated by the dialect.
 * @throws TypeError if the client cannot open further connections
 */
export function createAdvisoryDriver(dialect: AdvisoryDialect, source: ClientSource, options: AdvisoryOptions): Driver {
  if (source.existing !== null) requireDedicated(source.existing);
  return new AdvisoryDriver(dialect, source, options);
}

function requireDedicated({ connectDedicated }: SqlClient): NonNullable<SqlClient["connectDedicated"]> {
  if (connectDedicated === undefined) throw new TypeError(SINGLE_CONNECTION);
  return connectDedicated;
}

class AdvisoryDriver implements Driver {
  readonly name: string;
  readonly #dialect: AdvisoryDialect;
  readonly #source: ClientSource;
  readonly #options: AdvisoryOptions;
  readonly #clock: Clock;
  readonly #sessionMs: number;
  readonly #context: SessionContext;
  readonly #idleTimer: Timer;
  readonly #claims: OwnClaims;
  /** null: not open. */
  #connections: Connections | null = null;
  #close: () => Promise<void> = async () => undefined;
  #events: DriverEvents | null = null;

  constructor(dialect: AdvisoryDialect, source: ClientSource, options: AdvisoryOptions) {
    this.name = dialect.name;
    this.#dialect = dialect;
    this.#source = source;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#sessionMs = options.sessionMs ?? DEFAULT_SESSION_MS;
    this.#context = createSessionContext(dialect, this.#clock, this.#sessionMs);
    this.#claims = new OwnClaims(this.#clock, this.#sessionMs, options.label ?? "");
    // earlier than the server, which would log it as an error
    this.#idleTimer = this.#clock.timer(() => {
      this.#connections?.closeIdle(this.#claims.isEmpty);
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const { connectTimeout, warn, silenceWarnings } = this.#options;
    const database = {
      name: this.name,
      open: () => this.#connect(),
      inspect: ({ connections }: OpenConnections) => this.#diagnose(connections),
    };
    const { session, found: checks } = await openDatabase(database, this.#clock, toConnectTimeoutMs(connectTimeout));
    for (const warning of formatWarnings(this.name, checks, silenceWarnings)) resolveWarn(warn)(warning);
    this.#connections = session.connections;
    this.#close = session.close;
    this.#events = events;
    this.#startIdleTimer();
    return {
      lease: { claim: false, sessionMs: this.#sessionMs },
      manyKeys: false,
      permits: this.#dialect.permits,
      fencing: false,
      fifo: false,
      durability: "process",
      recall: false,
      list: "own",
    };
  }

  async claim(claim: Claim): Promise<Answer> {
    const end = this.#claims.endOf(claim);
    if (end !== undefined) return end;
    const known = this.#claims.get(claim.id);
    if (known !== undefined) return known.attempt ?? this.#claims.toAnswer(known);
    this.#requireConnections();
    const entry = this.#claims.add(claim, this.#toLock(claim.locks[0].key));
    try {
      entry.attempt = entry.queue.serialize(() => this.#admit(entry));
      return await entry.attempt;
    } catch (error) {
      this.#drop(entry);
      throw error;
    } finally {
      entry.attempt = null;
      this.#claims.deleteIfEmpty(entry.queue);
    }
  }

  async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
    const sessions = new Set<Session>();
    const polling: Entry[] = [];
    for (const { id } of claims) {
      const entry = this.#claims.get(id);
      if (entry === undefined || entry.attempt !== null) continue;
      if (entry.hold !== null) sessions.add(entry.hold.session);
      else if (!this.#startWait(entry.queue)) polling.push(entry);
    }
    const unanswered = new Set<Session | undefined>();
    await Promise.all([
      ...Array.from(sessions, (session) => session.probe().catch(() => unanswered.add(session))),
      ...polling.map((entry) => entry.queue.serialize(() => this.#poll(entry))),
    ]);
    return claims.map((claim) => {
      const entry = this.#claims.get(claim.id);
      if (entry === undefined) return this.#claims.endOf(claim) ?? NONE;
      if (entry.attempt !== null || unanswered.has(entry.hold?.session)) return undefined;
      return this.#claims.toAnswer(entry);
    });
  }

  shardOf({ id }: Claim): string {
    const session = this.#claims.get(id)?.hold?.session;
    return session === undefined || this.#connections?.isShared(session) ? "" : session.id;
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    for (const { claim } of releases) {
      const attempt = this.#claims.get(claim.id)?.attempt ?? null;
      if (attempt !== null) await attempt.catch(() => undefined);
    }
    const [first, ...others] = releases;
    if (first !== undefined && others.length === 0) return [await this.#end(this.#take(first))];
    const entries = releases.map((release) => this.#take(release));
    const results = new Map<Entry | undefined, Promise<boolean>>();
    const held = new Map<Session, [Entry, ...Entry[]]>();
    for (const entry of entries) {
      const session = entry?.hold?.session;
      if (entry === undefined || session === undefined) results.set(entry, this.#end(entry));
      else held.set(session, [entry, ...(held.get(session) ?? [])]);
    }
    for (const [session, together] of held) {
      const flags = this.#unlock(session, together);
      for (const [index, entry] of together.entries())
        results.set(
          entry,
          flags.then((all) => all[index] === true),
        );
    }
    return Promise.all(entries.map((entry) => results.get(entry) as Promise<boolean>));
  }

  async list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
    options.signal?.throwIfAborted();
    return this.#claims.list(query, options);
  }

  async diagnose(): Promise<readonly Check[]> {
    return this.#diagnose(this.#requireConnections());
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#connections = null;
    this.#idleTimer.stop();
    this.#claims.clear();
    await this.#close();
  }

  async #diagnose(connections: Connections): Promise<readonly Check[]> {
    return (await connections.shared()).query((connection) => this.#dialect.diagnose(connection));
  }

  /** One attempt of open(). */
  async #connect(): Promise<OpenConnections> {
    const { create, isOwned } = this.#source;
    const client = await create();
    const close = async (): Promise<void> => {
      await connections.close();
      if (isOwned) await client.close();
    };
    const connections: Connections = new Connections({
      context: this.#context,
      connect: () => requireDedicated(client)(),
      maxWaitConnections: this.#options.maxWaitConnections ?? DEFAULT_MAX_WAIT_CONNECTIONS,
      onEnd: (session) => this.#onSessionEnd(session),
    });
    try {
      await connections.open();
    } catch (error) {
      await close();
      throw toOpenError(this.#dialect.explainError(error));
    }
    return { connections, close };
  }

  #requireConnections(): Connections {
    if (this.#connections === null) throw new Error(`${this.name}: the driver is not open`);
    return this.#connections;
  }

  #toLock(key: string): ReturnType<AdvisoryDialect["toLock"]> {
    try {
      return this.#dialect.toLock(key);
    } catch (cause) {
      // a retry would call the user's function with the same key
      if (isFatalError(cause)) throw cause;
      throw new StoreRefusedError(`${this.name}: the option ${this.#dialect.lockOption} failed`, {
        keys: [key],
        cause,
      });
    }
  }

  /** Within serialize() of its queue. */
  async #admit(entry: Entry): Promise<Answer> {
    const { queue, claim } = entry;
    if (queue.waiting.length === 0 && (await this.#tryShared(entry))) return this.#claims.toAnswer(entry);
    if (!claim.wait) {
      this.#drop(entry);
      return NONE;
    }
    queue.waiting.push(entry);
    this.#startWait(queue);
    return this.#claims.toAnswer(entry);
  }

  /** A waiting claim without a connection of its own tries again. Within serialize() of its queue. */
  async #poll(entry: Entry): Promise<void> {
    const { queue } = entry;
    if (queue.waiting[0] !== entry || queue.wait !== null) return;
    if (await this.#tryShared(entry)) this.#advance(queue);
  }

  /** Tries the lock on the shared session. Within serialize() of its queue (I1). */
  async #tryShared(entry: Entry): Promise<boolean> {
    const { queue, mode } = entry;
    if (!queue.admits(entry)) return false;
    const opening = this.#requireConnections().shared();
    const session = opening instanceof Promise ? await opening : opening;
    let isLocked: boolean;
    try {
      isLocked = await session.tryLock(mode);
    } catch (error) {
      await this.#undoTry(session, entry);
      throw error;
    }
    if (!isLocked) return false;
    if (session.isEnded) throw new Error(`${this.name}: the connection has ended`);
    // withdrawn meanwhile: only a poll, since release() waits for the end of a `claim` call
    if (!this.#claims.has(entry)) {
      await this.#unlock(session, [entry]);
      return false;
    }
    this.#hold(entry, session);
    return true;
  }

  /** The server may have cancelled the statement after it had taken the lock (I4). */
  async #undoTry(session: Session, { queue, mode }: Entry): Promise<void> {
    if (session.isEnded) return;
    const isSharedWithOthers = queue.holders.some(({ hold }) => hold?.session === session);
    if (isSharedWithOthers) await session.end();
    else await session.unlock(mode).catch(() => session.end());
  }

  #hold(entry: Entry, session: Session): void {
    entry.queue.remove(entry);
    entry.hold = { session, grantedAt: this.#clock.now() };
    entry.queue.holders.push(entry);
  }

  /**
   * The first waiting claim of a queue begins to wait at the server, on a connection of its own.
   * @returns false if there is none, so that claims have to ask again
   */
  #startWait(queue: LockQueue): boolean {
    const [head] = queue.waiting;
    if (queue.wait !== null || head === undefined) return true;
    const opening = this.#connections?.take() ?? null;
    if (opening === null) return false;
    const wait: Wait = { entry: head, session: null, isCancelled: false, done: Promise.resolve() };
    queue.wait = wait;
    wait.done = this.#waitAtServer(queue, wait, opening);
    return true;
  }

  /** Its first claim has left the queue. */
  #advance(queue: LockQueue): void {
    const [head] = queue.waiting;
    if (!this.#startWait(queue) && head !== undefined) this.#notify(head);
    this.#claims.deleteIfEmpty(queue);
  }

  /** Never rejects. */
  async #waitAtServer(queue: LockQueue, wait: Wait, opening: Promise<Session>): Promise<void> {
    const { entry } = wait;
    let isLocked = false;
    try {
      const session = await opening;
      wait.session = session;
      if (!wait.isCancelled) isLocked = await session.waitForLock(entry.mode);
      // the answer may have been on its way for long, and the session may have ended since
      if (isLocked && !wait.isCancelled) await session.probe();
    } catch {
      // the claim asks again; a session whose wait has failed may have the lock (I4)
      void wait.session?.end();
    }
    if (wait.isCancelled) {
      // a signal of the cancellation may still come, so the session is not used again
      if (isLocked) await wait.session?.unlock(entry.mode).catch(() => undefined);
      void wait.session?.end();
      return this.#claims.deleteIfEmpty(queue);
    }
    queue.wait = null;
    if (!isLocked || wait.session === null || wait.session.isEnded) {
      if (wait.session !== null) this.#connections?.give(wait.session);
      return this.#notify(entry);
    }
    this.#hold(entry, wait.session);
    this.#advance(queue);
    this.#push(entry, this.#claims.toAnswer(entry));
  }

  /** Forgets a claim that is released. Undefined: it was over. */
  #take({ claim, hasUnansweredClaim }: Release): Entry | undefined {
    const entry = this.#claims.get(claim.id);
    if (entry !== undefined) this.#drop(entry);
    if (entry !== undefined || (hasUnansweredClaim && this.#claims.endOf(claim) === undefined))
      this.#claims.setEnd(claim, NONE);
    return entry;
  }

  /**
   * Ends what a forgotten claim has at the server. Returns whether it still had its lock, or its place in the queue.
   */
  async #end(entry: Entry | undefined): Promise<boolean> {
    if (entry === undefined) return false;
    if (entry.hold !== null) return (await this.#unlock(entry.hold.session, [entry]))[0] === true;
    await this.#withdraw(entry);
    return true;
  }

  /** The claim leaves the queue, in which it waited. */
  async #withdraw({ queue, mode, claim }: Entry): Promise<void> {
    const { wait } = queue;
    if (wait?.entry.claim !== claim) return this.#claims.deleteIfEmpty(queue);
    wait.isCancelled = true;
    queue.wait = null;
    this.#advance(queue);
    // a connection that is being opened is closed when it is open
    if (wait.session === null) return;
    try {
      const shared = await this.#requireConnections().shared();
      await shared.cancelWait(wait.session.id, mode);
      await this.#context.timeouts.bound(wait.done, "end of a wait");
    } catch {
      void wait.session.end();
    }
  }

  /** For each claim, whether the session still had its lock. */
  async #unlock(session: Session, entries: readonly [Entry, ...Entry[]]): Promise<readonly boolean[]> {
    const connections = this.#requireConnections();
    const isShared = connections.isShared(session);
    const [first, ...others] = entries;
    const unlock = async (): Promise<readonly boolean[]> => {
      try {
        if (others.length === 0) return [await session.unlock(first.mode)];
        return await session.unlockAll(entries.map(({ mode }) => mode));
      } catch (error) {
        await session.end();
        // it had met another session, so it was shared with others, and the lock was not this claim's alone
        if (session.hasMetAnother) return entries.map(() => false);
        throw error;
      }
    };
    // a session for waiting has one lock. The next try goes over another connection, so it has to wait for this unlock
    const flags = await (isShared ? unlock() : first.queue.serialize(unlock));
    if (!isShared) {
      connections.give(session);
      this.#startIdleTimer();
    }
    for (const { queue } of entries) this.#claims.deleteIfEmpty(queue);
    return flags;
  }

  /** Forgets a claim, unless that has happened. What it has at the server is the caller's matter. */
  #drop(entry: Entry): void {
    if (!this.#claims.has(entry)) return;
    this.#claims.remove(entry);
    if (this.#claims.isEmpty) this.#startIdleTimer();
  }

  #startIdleTimer(): void {
    this.#idleTimer.set(this.#clock.now() + this.#sessionMs / 2);
  }

  /** I2: its locks are lost. */
  #onSessionEnd(session: Session): void {
    const lost = this.#claims.heldBy(session);
    for (const entry of lost) {
      this.#drop(entry);
      this.#claims.setEnd(entry.claim, EXPIRED);
      this.#push(entry, EXPIRED);
    }
    for (const { queue } of lost) this.#claims.deleteIfEmpty(queue);
  }

  /** Not from within a call of the core. */
  #push({ claim }: Entry, answer: Answer): void {
    queueMicrotask(() => this.#events?.pushed(claim.id, answer));
  }

  /** The core is to ask again. */
  #notify({ claim }: Entry): void {
    queueMicrotask(() => this.#events?.recheck(claim.id));
  }
}
