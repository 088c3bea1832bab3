/**
 * The driver's connections: the link that its scripts go over, what it hears of grants by (subscriptions.ts), and what it asks
 * about replicas by (replica-acks.ts). The only places of the driver that time anything.
 *
 * Invariants
 * - A call is answered, fails, or is given up on within its time. Nothing is sent while the link is down, so no client
 *   library keeps it for later; what a library sends again by itself after a break is told by `life`.
 * - In each life of the link its database is selected before any script runs: a client that may not select it goes on in
 *   database 0, where others do not see its locks.
 * - Where replicas are waited for, no answer says that a claim is held before they have it.
 */

import { setTimeout as pause } from "node:timers/promises";
import { CallTimeouts } from "./call-timeouts.ts";
import type { ClientAddress } from "./clients/address.ts";
import type { ClientAdapter } from "./clients/types.ts";
import { isLoadingError, isNoScriptError, isPermanentError, sanitizeError, toConnectError } from "./errors.ts";
import type { ReplicaSettings } from "./replica-acks.ts";
import { ReplicaAcks } from "./replica-acks.ts";
import { isHeldReply, isWaitingReply, toScriptKeys } from "./script-codec.ts";
import type { Script } from "./scripts.ts";
import { Subscriptions } from "./subscriptions.ts";

/** Milliseconds after which a client that has given up connecting, or a server that could not answer, is asked again. */
const RETRY_INTERVAL_MS = 100;

/** Sends a script the way that is a route: any key of its bucket. */
export type RunScript = (script: Script, routingKey: string, args: readonly string[]) => Promise<unknown>;

export interface ConnectionOptions {
  readonly adapter: ClientAdapter;
  /** Was the link's client made by us? Then it ends with us. */
  readonly ownsClient: boolean;
  /** The beginning of all names that have a bucket. */
  readonly namePrefix: string;
  /** What our inbox is known by: random. */
  readonly inboxId: string;
  /** Milliseconds after which a call is given up on. */
  readonly commandTimeoutMs: number;
  /** Null: no replicas are waited for. */
  readonly replicas: ReplicaSettings | null;
  /** Something was said to our channel. `isAnswer`: it may be taken at its word. */
  readonly onPush: (message: string, isAnswer: boolean) => void;
  /** Anything may have been missed. */
  readonly onMissed: () => void;
}

interface DatabaseSelection {
  readonly epoch: number;
  /** Null when it is done. */
  done: Promise<void> | null;
}

/** Told when a call is given up on, and when it is settled all the same. */
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
  /** Where our locks are: where the client was at first. */
  #database: number | null = null;
  #isClosed = false;
  #onChange: () => void = () => undefined;
  #wasConnected = false;
  readonly #inboxChannel: string;
  /** Counts the breaks of the link. */
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

  /** Several masters: the calls of each bucket go by themselves, and each bucket has an inbox. */
  get isCluster(): boolean {
    return this.#options.adapter.isCluster;
  }

  /** See ClientAdapter. */
  get hidesDisconnects(): boolean {
    return this.#options.adapter.hidesDisconnects === true;
  }

  /** The channel of the inbox for claims that go this way. */
  inboxChannel(routingKey: string): string {
    return this.isCluster ? toSiblingKey(routingKey, `inbox:${this.#options.inboxId}`) : this.#inboxChannel;
  }

  /** Null if nothing said to the inbox of this route is missed; else settles when that is so. */
  ensureSubscribed(routingKey: string): Promise<void> | null {
    const subscribed = this.#subscriptions.ensureSubscribed(routingKey);
    if (subscribed !== null && this.#isClosed) return Promise.reject(new Error("redis: not connected"));
    return subscribed && this.#timeouts.bound(subscribed, "subscription");
  }

  /** Of these routes one to each master, as far as they are known. */
  onePerMaster(routingKeys: readonly string[]): readonly string[] {
    return [
      ...new Map(
        routingKeys.map((routingKey) => [this.#options.adapter.resolveMaster(routingKey), routingKey]),
      ).values(),
    ];
  }

  /** Where the link goes, for messages. */
  get address(): ClientAddress {
    return this.#options.adapter.address;
  }

  /**
   * Connects and does this work. What a broken connection or a restart of the server spoils is done again until the time is
   * up. @throws what the work throws, or Error saying why there is no connection
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
   * Null if the link's database has been selected in this life; else settles when that is so. While it fails scripts fail, and
   * the next asks again.
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

  /** Runs a script, in the database that is meant. */
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
    // a library that sent it again after a break may have done so in another database
    const databaseReadyAgain = this.ensureDatabase(routingKey);
    if (databaseReadyAgain !== null) await databaseReadyAgain;
    const isWaiting = isWaitingReply(script, reply);
    if (isWaiting || this.isCluster) this.#subscriptions.onCommandRouted(routingKey, isWaiting);
    if (this.#replicaAcks !== null && isHeldReply(script, reply)) {
      await this.#replicaAcks.waitForAcks(routingKey);
      // another server may have taken over meanwhile, without this grant
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

  /** Which life of which server answers there. */
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

  /** Waits for the link, but not while its client says what waiting does not change. */
  async #waitUntilReady(timeoutMs: number, remainingMs: number): Promise<void> {
    const { adapter } = this.#options;
    let failure: unknown;
    const stopWatchingErrors = adapter.watchErrors((error) => {
      failure = error;
      this.#onChange();
    });
    let retryTimer: NodeJS.Timeout | undefined;
    let isOver = false;
    // a client that has given up is asked again; one that goes on trying by itself has nothing to begin
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

  /** Settles when a fact holds that `#onChange` tells of. @throws Error if that takes too long */
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

/** A name beside the keys of this bucket: its hash tag makes it theirs. */
function toSiblingKey(routingKey: string, name: string): string {
  return `${routingKey.slice(0, routingKey.indexOf("}") + 1)}:${name}`;
}
