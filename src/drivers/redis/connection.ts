/**
 * The driver's connections: the client that runs the scripts, the subscriptions for grants (subscriptions.ts) and the
 * connections for WAIT (replica-acks.ts).
 *
 * Invariants
 * - A call is answered, fails or times out within its time. Nothing is sent while the client is disconnected, so no
 *   client library keeps a command for later. After a break a library may send a command again; a changed `epoch` shows
 *   that.
 * - In each epoch the database is selected before any script runs: a client that may not select it continues in
 *   database 0, where other clients do not see its locks.
 * - With the option replicas, no answer reports a claim as held before enough replicas have acknowledged it.
 */

import { backoffMs } from "../../util/backoff.ts";
import type { Clock, Timer } from "../../util/clock.ts";
import { systemClock } from "../../util/clock.ts";
import { randomId } from "../../util/ids.ts";
import { keepProcessAlive, sleep, withTimeout } from "../../util/timeout.ts";
import { CallTimeouts } from "../call-timeouts.ts";
import type { ClientAdapter, ClientAddress } from "./clients/types.ts";
import {
  isMovedError,
  isNoScriptError,
  isPassingError,
  isPermanentError,
  isReplicaError,
  isTimeoutError,
  sanitizeError,
  toConnectError,
} from "./errors.ts";
import { toBucketInboxChannel, toInboxChannel, toNamePrefix, toScriptKeys } from "./key-names.ts";
import type { RedisOptions } from "./options.ts";
import { ReplicaAcks } from "./replica-acks.ts";
import type { Script } from "./script-codec.ts";
import { isHeldReply, isWaitingReply } from "./script-codec.ts";
import type { PushEvents } from "./subscriptions.ts";
import { Subscriptions } from "./subscriptions.ts";

/** Milliseconds between attempts to open, when the client does not retry by itself or the server is loading. */
const RETRY_INTERVAL_MS = 100;
/** The longest pause between attempts to reconnect a client that has stopped. */
const MAX_BACKOFF_MS = 2_000;
/** The least that an attempt to reconnect may take: it has more round trips than a command. */
const MIN_ATTEMPT_TIMEOUT_MS = 2_000;

interface DatabaseSelection {
  readonly epoch: number;
  /** Null: finished. */
  done: Promise<void> | null;
}

/** Called when a call times out, and when its reply arrives after that. */
export interface LateReply {
  readonly onTimeout: () => void;
  readonly onLateReply: () => void;
}

export class Connection {
  readonly #adapter: ClientAdapter;
  /** Whether the driver created the client: then close() disconnects it. */
  readonly #ownsClient: boolean;
  readonly #clock: Clock;
  readonly #stopWatching: () => void;
  readonly #timeouts: CallTimeouts;
  readonly #subscriptions: Subscriptions;
  readonly #replicaAcks: ReplicaAcks | null;
  readonly #events: PushEvents;
  readonly #inboxId = randomId();
  readonly #inboxChannel: string;
  #selection: DatabaseSelection | null = null;
  /** The database of the locks: the one that the client used first. */
  #database: number | null = null;
  #isClosed = false;
  readonly #reconnectTimer: Timer;
  /** A server that does not answer still accepts connections, and libraries wait for it without end. */
  readonly #attemptTimer: Timer;
  #failedAttempts = 0;
  /** The number of answers of each master, by name. */
  readonly #answerCounts = new Map<string | null, number>();
  #onChange: () => void = () => undefined;
  /** Before the first connection: the client has ended, and is to be started again. */
  #onStopped: () => void = () => undefined;
  #wasConnected = false;
  /** Counts the breaks of the connection. */
  epoch = 0;

  constructor(adapter: ClientAdapter, ownsClient: boolean, options: RedisOptions, events: PushEvents) {
    const { commandTimeoutMs = 5_000, clock = systemClock, replicas } = options;
    this.#adapter = adapter;
    this.#ownsClient = ownsClient;
    this.#clock = clock;
    this.#events = events;
    this.#inboxChannel = toInboxChannel(toNamePrefix(options), this.#inboxId);
    this.#timeouts = new CallTimeouts(clock, commandTimeoutMs, "redis");
    this.#replicaAcks =
      replicas === undefined ? null : new ReplicaAcks(adapter, this.send, this.#timeouts, this.#inboxId, replicas);
    this.#subscriptions = new Subscriptions(adapter, this, clock, events);
    this.#reconnectTimer = clock.timer(() => {
      this.#limitAttempt();
      adapter.connect().catch(() => undefined); // reported by onStopped
    });
    this.#attemptTimer = clock.timer(() => {
      if (adapter.isReady) return;
      this.#limitAttempt();
      adapter.reconnect();
    });
    if (ownsClient) adapter.takeOwnership(() => this.#reconnectLater());
    this.#stopWatching = adapter.watchConnection({
      onConnected: () => this.#onConnected(),
      onDisconnected: () => this.#onDisconnected(),
    });
  }

  /** In a Cluster each bucket has calls and an inbox of its own. */
  get isCluster(): boolean {
    return this.#adapter.isCluster;
  }

  /** The inbox channel for the claims of a bucket. */
  inboxChannel(routingKey: string): string {
    return this.isCluster ? toBucketInboxChannel(routingKey, this.#inboxId) : this.#inboxChannel;
  }

  /** Null if the inbox of this bucket is subscribed; else settles when it is. */
  ensureSubscribed(routingKey: string): Promise<void> | null {
    const subscribed = this.#subscriptions.ensureSubscribed(routingKey);
    if (subscribed !== null && this.#isClosed) return Promise.reject(new Error("redis: not connected"));
    return subscribed && this.#timeouts.bound(subscribed, "subscription");
  }

  /** One of these routing keys for each known master. */
  onePerMaster(routingKeys: readonly string[]): readonly string[] {
    return [
      ...new Map(routingKeys.map((routingKey) => [this.#adapter.resolveMaster(routingKey), routingKey])).values(),
    ];
  }

  /** The address of the client, for messages. */
  get address(): ClientAddress {
    return this.#adapter.address;
  }

  /**
   * Connects and runs `work`. Repeats both after a broken connection or an error that passes, until the timeout.
   * @throws the error of `work`, or Error saying why there is no connection
   */
  connectAndDo(timeoutMs: number, work: () => Promise<void>): Promise<void> {
    return keepProcessAlive(this.#clock, () => this.#connectAndDo(timeoutMs, work));
  }

  async #connectAndDo(timeoutMs: number, work: () => Promise<void>): Promise<void> {
    const deadline = this.#clock.now() + timeoutMs;
    const timer = this.#clock.timer(() => this.#onChange());
    timer.set(deadline);
    let failure: unknown;
    // a command that is not answered would fail later by itself
    const onTimeout = (): Promise<void> => {
      return Promise.reject(failure ?? toConnectError(undefined, this.#adapter.address, timeoutMs));
    };
    try {
      for (;;) {
        const { epoch } = this;
        try {
          if (!this.#adapter.isReady) await this.#waitUntilReady(timeoutMs, deadline);
          this.#wasConnected = true;
          return await withTimeout(this.#clock, deadline - this.#clock.now(), work(), onTimeout);
        } catch (error) {
          failure = error;
          const isMoved = this.isCluster && isMovedError(error);
          const isTransient = this.epoch !== epoch || !this.#adapter.isReady || isPassingError(error) || isMoved;
          const isLate = this.#clock.now() + RETRY_INTERVAL_MS >= deadline;
          if (!isTransient || isLate || (isPermanentError(error) && !isMoved)) throw error;
          await sleep(this.#clock, RETRY_INTERVAL_MS);
        }
      }
    } finally {
      timer.stop();
    }
  }

  /**
   * Null if the database has been selected in this epoch; else settles when it is. If SELECT fails, the script fails,
   * and the next script tries again.
   */
  ensureDatabase(routingKey: string): Promise<void> | null {
    const { database } = this.#adapter;
    this.#database ??= database;
    if (database !== this.#database) {
      const problem = `the client switched from database ${this.#database} to ${database}, where other clients do not see its locks`;
      return Promise.reject(new Error(`redis: ${problem}`));
    }
    if (database === 0) return null;
    if (this.#selection?.epoch === this.epoch) return this.#selection.done;
    const selection: DatabaseSelection = {
      epoch: this.epoch,
      done: this.send(["SELECT", String(database)], routingKey).then(
        () => {
          selection.done = null;
        },
        (error: unknown) => {
          if (this.#selection === selection) this.#selection = null;
          throw error;
        },
      ),
    };
    this.#selection = selection;
    return selection.done;
  }

  /** Runs a script in the database of the locks. Not an async function: every claim would pay for its promises. */
  runScript(script: Script, routingKey: string, args: readonly string[], lateReply?: LateReply): Promise<unknown> {
    const databaseReady = this.ensureDatabase(routingKey);
    if (databaseReady === null) return this.#sendScript(script, routingKey, args, lateReply);
    return databaseReady.then(() => this.#sendScript(script, routingKey, args, lateReply));
  }

  readonly send = (args: string[], routingKey: string, lateReply?: LateReply): Promise<unknown> => {
    if (this.#isClosed || !this.#adapter.isReady) return Promise.reject(new Error("redis: not connected"));
    const { epoch } = this;
    const master = this.#adapter.resolveMaster(routingKey);
    const answersBefore = this.#answerCounts.get(master) ?? 0;
    const onTimeout = (): void => {
      const isSilent = (this.#answerCounts.get(master) ?? 0) === answersBefore;
      if (isSilent && epoch === this.epoch) this.#reconnect(routingKey);
    };
    const onAnswer = (): void => void this.#answerCounts.set(master, (this.#answerCounts.get(master) ?? 0) + 1);
    return new Promise((resolve, reject) => {
      const stopTimeout = this.#timeouts.start(() => {
        lateReply?.onTimeout();
        onTimeout();
        reject(new Error(`redis: no answer within ${this.#timeouts.timeoutMs} ms`));
      });
      const settle = (): boolean => {
        const isInTime = stopTimeout();
        if (!isInTime) lateReply?.onLateReply();
        return isInTime;
      };
      this.#adapter.send(args, routingKey).then(
        (reply) => {
          onAnswer();
          if (settle()) resolve(reply);
        },
        (error: unknown) => {
          if (isTimeoutError(error)) onTimeout();
          else onAnswer();
          // a Cluster client finds the new master by itself
          if (isReplicaError(error) && !this.isCluster && epoch === this.epoch) this.#reconnect(routingKey);
          if (settle()) reject(sanitizeError(error));
        },
      );
    });
  };

  close(): void {
    this.#isClosed = true;
    this.#stopWatching();
    this.#reconnectTimer.stop();
    this.#attemptTimer.stop();
    this.#timeouts.expireAll();
    this.#subscriptions.close();
    this.#replicaAcks?.close();
    if (this.#ownsClient) this.#adapter.disconnect();
  }

  /** Identifies the server and the epoch; it changes when another server may answer. */
  #locateServer(routingKey: string): string {
    return `${this.epoch} ${this.#adapter.resolveMaster(routingKey)}`;
  }

  #sendScript(
    script: Script,
    routingKey: string,
    args: readonly string[],
    lateReply: LateReply | undefined,
  ): Promise<unknown> {
    const keys = toScriptKeys(routingKey, this.isCluster);
    const serverBefore = this.#replicaAcks && this.#locateServer(routingKey);
    const onReply = (reply: unknown): unknown => {
      // after a break the library may have sent the script again, to database 0
      const databaseReady = this.ensureDatabase(routingKey);
      const isWaiting = isWaitingReply(script, reply);
      if (isWaiting || this.isCluster) this.#subscriptions.onCommandRouted(routingKey, isWaiting);
      if (databaseReady === null && this.#replicaAcks === null) return reply;
      return this.#confirmReply(script, routingKey, reply, databaseReady, serverBefore);
    };
    return this.send(["EVALSHA", script.sha, ...keys, ...args], routingKey, lateReply).then(
      onReply,
      (error: unknown) => {
        if (!isNoScriptError(error)) throw error;
        return this.send(["EVAL", script.text, ...keys, ...args], routingKey, lateReply).then(onReply);
      },
    );
  }

  /** @throws Error if the script may have run in another database, or its grants may be lost with this server */
  async #confirmReply(
    script: Script,
    routingKey: string,
    reply: unknown,
    databaseReady: Promise<void> | null,
    serverBefore: string | null,
  ): Promise<unknown> {
    if (databaseReady !== null) await databaseReady;
    if (this.#replicaAcks !== null && isHeldReply(script, reply)) {
      await this.#replicaAcks.waitForAcks(routingKey);
      // another server may have become master meanwhile, without this grant
      if (serverBefore !== this.#locateServer(routingKey)) throw new Error("redis: the connection changed during WAIT");
    }
    return reply;
  }

  /**
   * The connection leads to a replica, or to a server that does not answer: a new one may lead elsewhere. A client of
   * the user follows its own options.
   */
  #reconnect(routingKey: string): void {
    if (this.#ownsClient && !this.#isClosed && this.#adapter.isReady) this.#adapter.reconnect(routingKey);
  }

  #limitAttempt(): void {
    if (!this.#ownsClient || this.#isClosed || !this.#wasConnected) return; // else connectAndDo() has a limit
    this.#attemptTimer.set(this.#clock.now() + Math.max(this.#timeouts.timeoutMs, MIN_ATTEMPT_TIMEOUT_MS));
  }

  /** The timer does not keep the process alive, while those of some libraries do. */
  #reconnectLater(): void {
    if (this.#isClosed) return;
    if (!this.#wasConnected) {
      this.#onStopped();
      return;
    }
    this.#failedAttempts++;
    const pauseMs = backoffMs(this.#failedAttempts, Math.random(), MAX_BACKOFF_MS, RETRY_INTERVAL_MS);
    this.#reconnectTimer.set(this.#clock.now() + pauseMs);
  }

  #onConnected(): void {
    this.#failedAttempts = 0;
    this.#attemptTimer.set(null);
    this.#onChange();
    if (!this.#wasConnected || this.#isClosed) return;
    this.#subscriptions.invalidateAll();
    this.#events.onMissed();
  }

  #onDisconnected(): void {
    this.epoch++;
    this.#limitAttempt();
    this.#events.onDisconnected();
  }

  /** Waits for the connection, but ends early on a permanent error. @throws Error */
  async #waitUntilReady(timeoutMs: number, deadline: number): Promise<void> {
    const adapter = this.#adapter;
    let failure: unknown;
    const stopWatchingErrors = adapter.watchErrors((error) => {
      failure = error;
      this.#onChange();
    });
    // a client that has stopped reconnecting must be started again; for one that still retries this does nothing
    const retryTimer = this.#clock.timer(() => connect());
    const retryLater = (): void => retryTimer.set(this.#clock.now() + RETRY_INTERVAL_MS);
    let isOver = false;
    const connect = (): void => {
      adapter.connect().then(
        () => this.#onChange(),
        (error: unknown) => {
          failure ??= error;
          if (!isOver) retryLater();
          this.#onChange();
        },
      );
    };
    // a library that still retried when connect() was called may give up after that
    this.#onStopped = retryLater;
    connect();
    await new Promise<void>((resolve) => {
      this.#onChange = () => {
        if (adapter.isReady || isPermanentError(failure) || this.#clock.now() >= deadline) resolve();
      };
      this.#onChange();
    });
    this.#onChange = () => undefined;
    this.#onStopped = () => undefined;
    isOver = true;
    retryTimer.stop();
    stopWatchingErrors();
    if (adapter.isReady) return;
    throw toConnectError(failure, adapter.address, isPermanentError(failure) ? undefined : timeoutMs);
  }
}
