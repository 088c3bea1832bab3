/**
 * The driver's connections: the client that runs the scripts, the subscriptions for grants (subscriptions.ts) and the
 * connections for WAIT (replica-acks.ts). Only these files of the driver use timers.
 *
 * Invariants
 * - A call is answered, fails or times out within its time. Nothing is sent while the client is disconnected, so no
 *   client library keeps a command for later. After a break a library may send a command again; a changed `epoch` shows
 *   that.
 * - In each epoch the database is selected before any script runs: a client that may not select it continues in
 *   database 0, where other clients do not see its locks.
 * - With the option replicas, no answer reports a claim as held before enough replicas have acknowledged it.
 */

import { setTimeout as pause } from "node:timers/promises";
import { CallTimeouts } from "./call-timeouts.ts";
import type { ClientAdapter, ClientAddress } from "./clients/types.ts";
import { isLoadingError, isNoScriptError, isPermanentError, sanitizeError, toConnectError } from "./errors.ts";
import type { ReplicaSettings } from "./replica-acks.ts";
import { ReplicaAcks } from "./replica-acks.ts";
import { isHeldReply, isWaitingReply, toScriptKeys } from "./script-codec.ts";
import type { Script } from "./scripts.ts";
import { Subscriptions } from "./subscriptions.ts";

/** Milliseconds between attempts to open, when the client does not retry by itself or the server is loading. */
const RETRY_INTERVAL_MS = 100;

/** Runs a script. `routingKey`: any key of its bucket. */
export type RunScript = (script: Script, routingKey: string, args: readonly string[]) => Promise<unknown>;

export interface ConnectionOptions {
  readonly adapter: ClientAdapter;
  /** Whether the driver created the client: then close() disconnects it. */
  readonly ownsClient: boolean;
  /** The prefix of all keys and channels with a bucket. */
  readonly namePrefix: string;
  /** Random id of the inbox channels of this driver. */
  readonly inboxId: string;
  /** Timeout of a call in milliseconds. */
  readonly commandTimeoutMs: number;
  /** Null: the driver does not wait for replicas. */
  readonly replicas: ReplicaSettings | null;
  /** A message arrived in an inbox. `isAnswer`: it counts as an answer, not only as a recheck push. */
  readonly onPush: (message: string, isAnswer: boolean) => void;
  /** Pushes may have been lost. */
  readonly onMissed: () => void;
}

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
  readonly #options: ConnectionOptions;
  readonly #stopWatching: () => void;
  readonly #timeouts: CallTimeouts;
  readonly #subscriptions: Subscriptions;
  readonly #replicaAcks: ReplicaAcks | null;
  #selection: DatabaseSelection | null = null;
  /** The database of the locks: the one that the client used first. */
  #database: number | null = null;
  #isClosed = false;
  #onChange: () => void = () => undefined;
  #wasConnected = false;
  readonly #inboxChannel: string;
  /** Counts the breaks of the connection. */
  epoch = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    const { adapter, namePrefix, inboxId, onPush, onMissed } = options;
    this.#inboxChannel = `${namePrefix}inbox:${inboxId}`;
    this.#timeouts = new CallTimeouts(options.commandTimeoutMs);
    this.#replicaAcks = this.#createReplicaAcks(options);
    this.#subscriptions = new Subscriptions({
      adapter,
      toChannel: (routingKey) => this.inboxChannel(routingKey),
      send: (args, routingKey) => this.send(args, routingKey),
      getEpoch: () => this.epoch,
      onPush,
      onMissed: () => {
        if (!this.#isClosed) onMissed();
      },
    });
    if (options.ownsClient) options.adapter.takeOwnership();
    this.#stopWatching = options.adapter.watchConnection({
      onConnected: () => this.#onConnected(),
      onDisconnected: () => this.#onDisconnected(),
    });
  }

  /** In a Cluster each bucket has calls and an inbox of its own. */
  get isCluster(): boolean {
    return this.#options.adapter.isCluster;
  }

  /** See ClientAdapter. */
  get hidesDisconnects(): boolean {
    return this.#options.adapter.hidesDisconnects === true;
  }

  /** The inbox channel for the claims of a bucket. */
  inboxChannel(routingKey: string): string {
    return this.isCluster ? toSiblingKey(routingKey, `inbox:${this.#options.inboxId}`) : this.#inboxChannel;
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
      ...new Map(
        routingKeys.map((routingKey) => [this.#options.adapter.resolveMaster(routingKey), routingKey]),
      ).values(),
    ];
  }

  /** The address of the client, for messages. */
  get address(): ClientAddress {
    return this.#options.adapter.address;
  }

  /**
   * Connects and runs `work`. Repeats both after a broken connection or while the server is loading, until the timeout.
   * @throws the error of `work`, or Error saying why there is no connection
   */
  async connectAndDo(timeoutMs: number, work: () => Promise<void>): Promise<void> {
    const { adapter } = this.#options;
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      const { epoch } = this;
      try {
        if (!adapter.isReady) await this.#waitUntilReady(timeoutMs, Math.max(deadline - performance.now(), 1));
        this.#wasConnected = true;
        await work();
        return;
      } catch (error) {
        const isTransient = this.epoch !== epoch || !adapter.isReady || isLoadingError(error);
        if (!isTransient || isPermanentError(error) || performance.now() + RETRY_INTERVAL_MS >= deadline) throw error;
        await pause(RETRY_INTERVAL_MS);
      }
    }
  }

  /**
   * Null if the database has been selected in this epoch; else settles when it is. If SELECT fails, the script fails,
   * and the next script tries again.
   */
  ensureDatabase(routingKey: string): Promise<void> | null {
    const { database } = this.#options.adapter;
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

  /** Runs a script in the database of the locks. */
  async runScript(
    script: Script,
    routingKey: string,
    args: readonly string[],
    lateReply?: LateReply,
  ): Promise<unknown> {
    const databaseReady = this.ensureDatabase(routingKey);
    if (databaseReady !== null) await databaseReady;
    const serverBefore = this.#replicaAcks && this.#locateServer(routingKey);
    const reply = await this.#sendScript(script, routingKey, args, lateReply);
    // after a break the library may have sent the script again, to database 0
    const databaseReadyAgain = this.ensureDatabase(routingKey);
    if (databaseReadyAgain !== null) await databaseReadyAgain;
    const isWaiting = isWaitingReply(script, reply);
    if (isWaiting || this.isCluster) this.#subscriptions.onCommandRouted(routingKey, isWaiting);
    if (this.#replicaAcks !== null && isHeldReply(script, reply)) {
      await this.#replicaAcks.waitForAcks(routingKey);
      // another server may have become master meanwhile, without this grant
      if (serverBefore !== this.#locateServer(routingKey)) throw new Error("redis: the connection changed during WAIT");
    }
    return reply;
  }

  send(args: string[], routingKey: string, lateReply?: LateReply): Promise<unknown> {
    const { adapter, commandTimeoutMs } = this.#options;
    if (this.#isClosed || !adapter.isReady) return Promise.reject(new Error("redis: not connected"));
    return new Promise((resolve, reject) => {
      const stopTimeout = this.#timeouts.start(() => {
        lateReply?.onTimeout();
        reject(new Error(`redis: no answer within ${commandTimeoutMs} ms`));
      });
      const settle = (): boolean => {
        const isInTime = stopTimeout();
        if (!isInTime) lateReply?.onLateReply();
        return isInTime;
      };
      adapter.send(args, routingKey).then(
        (reply) => {
          if (settle()) resolve(reply);
        },
        (error: unknown) => {
          if (settle()) reject(sanitizeError(error));
        },
      );
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#stopWatching();
    this.#timeouts.expireAll();
    this.#subscriptions.close();
    this.#replicaAcks?.close();
    if (this.#options.ownsClient) this.#options.adapter.disconnect();
  }

  #createReplicaAcks({ adapter, replicas, inboxId }: ConnectionOptions): ReplicaAcks | null {
    if (replicas === null) return null;
    let markerCount = 0;
    return new ReplicaAcks({
      adapter,
      settings: replicas,
      createMarkerKey: (routingKey) => toSiblingKey(routingKey, `m:${inboxId}${++markerCount}`),
      send: (args, routingKey) => this.send(args, routingKey),
      bound: (work, what) => this.#timeouts.bound(work, what),
    });
  }

  /** Identifies the server and the epoch; it changes when another server may answer. */
  #locateServer(routingKey: string): string {
    return `${this.epoch} ${this.#options.adapter.resolveMaster(routingKey)}`;
  }

  async #sendScript(
    script: Script,
    routingKey: string,
    args: readonly string[],
    lateReply?: LateReply,
  ): Promise<unknown> {
    const keys = toScriptKeys(routingKey, this.isCluster);
    try {
      return await this.send(["EVALSHA", script.sha, ...keys, ...args], routingKey, lateReply);
    } catch (error) {
      if (!isNoScriptError(error)) throw error;
      return this.send(["EVAL", script.text, ...keys, ...args], routingKey, lateReply);
    }
  }

  #onConnected(): void {
    this.#onChange();
    if (!this.#wasConnected || this.#isClosed) return;
    this.#subscriptions.invalidateAll();
    this.#options.onMissed();
  }

  #onDisconnected(): void {
    this.epoch++;
  }

  /** Waits for the connection, but ends early on a permanent error. */
  async #waitUntilReady(timeoutMs: number, remainingMs: number): Promise<void> {
    const { adapter } = this.#options;
    let failure: unknown;
    const stopWatchingErrors = adapter.watchErrors((error) => {
      failure = error;
      this.#onChange();
    });
    let retryTimer: NodeJS.Timeout | undefined;
    let isOver = false;
    // a client that has stopped reconnecting must be started again; for one that still retries this does nothing
    const connect = (): void => {
      adapter.connect().then(
        () => this.#onChange(),
        (error: unknown) => {
          failure ??= error;
          if (!isOver) retryTimer = setTimeout(connect, RETRY_INTERVAL_MS);
          this.#onChange();
        },
      );
    };
    connect();
    try {
      await this.#waitFor(() => adapter.isReady || isPermanentError(failure), remainingMs);
    } catch {
      throw toConnectError(failure, adapter.address, timeoutMs);
    } finally {
      isOver = true;
      clearTimeout(retryTimer);
      stopWatchingErrors();
    }
    if (!adapter.isReady) throw toConnectError(failure, adapter.address);
  }

  /** Settles when the condition holds; `#onChange` checks it again. @throws Error at the timeout */
  #waitFor(condition: () => boolean, remainingMs: number): Promise<void> {
    if (condition()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#onChange = () => undefined;
        reject(new Error("redis: timed out"));
      }, remainingMs);
      this.#onChange = () => {
        if (!condition()) return;
        clearTimeout(timer);
        this.#onChange = () => undefined;
        resolve();
      };
    });
  }
}

/** A name with the hash tag of the routing key, so in the same slot. */
function toSiblingKey(routingKey: string, name: string): string {
  return `${routingKey.slice(0, routingKey.indexOf("}") + 1)}:${name}`;
}
