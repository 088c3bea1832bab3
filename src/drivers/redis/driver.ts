/**
 * The Redis driver. Lua scripts keep the queues of keys (see lua/lib/prelude.lua); each operation is one round trip, and the
 * claims and releases of one turn of the event loop share one (command-batches.ts). The script that releases a lock also grants it
 * to the next waiter and publishes the grant to the inbox channel of the waiter's process.
 */

import type {
  Answer,
  Check,
  Claim,
  ClaimId,
  ClaimView,
  Driver,
  DriverEvents,
  ListOptions,
  ListQuery,
  Page,
  Release,
  Traits,
} from "../../spi/driver.ts";
import { systemClock } from "../../util/clock.ts";
import { SlotMap } from "../../util/slot-map.ts";
import type { LostClaim } from "../data-loss-guard.ts";
import { DataLossGuard, resolveMaxTtlMs } from "../data-loss-guard.ts";
import { RecentReleases } from "../recent-releases.ts";
import { decodeAnswer, decodeFlags, decodePush, isForgottenReply, isMissedGrantReply } from "../reply-codec.ts";
import { formatWarnings, resolveWarn } from "../warnings.ts";
import { adaptClient } from "./clients/detect.ts";
import type { RedisClient } from "./clients/types.ts";
import type { SendBatch } from "./command-batches.ts";
import { CommandBatches, ITEMS_PER_COMMAND } from "./command-batches.ts";
import type { LateReply } from "./connection.ts";
import { Connection } from "./connection.ts";
import type { DiagnosticsContext } from "./diagnostics.ts";
import { createQueries, diagnoseAll, findKeysWithoutTtl } from "./diagnostics.ts";
import {
  isRunRecordKey,
  LAYOUT_VERSION,
  toBucket,
  toClaimBucket,
  toLayoutKey,
  toNamePrefix,
  toRoutingKey,
} from "./key-names.ts";
import { listClaims } from "./list.ts";
import { LostReleases } from "./lost-releases.ts";
import DETACH from "./lua/detach.lua";
import RENEW from "./lua/renew.lua";
import RESTORE from "./lua/restore.lua";
import REVOKE from "./lua/revoke.lua";
import TURN from "./lua/turn.lua";
import type { RedisOptions } from "./options.ts";
import { validateRedisOptions } from "./options.ts";
import { checkRunRecords, encodeRunRecord } from "./run-record.ts";
import type { RunScript, Script } from "./script-codec.ts";
import { encodeClaim, encodeClaimItem, encodeGiveBackItem, encodeName, encodeReleaseItem } from "./script-codec.ts";
import { connectAndVerify } from "./verify-server.ts";

export type { GuardDataLossOptions } from "../data-loss-guard.ts";
export type { RedisClient } from "./clients/types.ts";
export type { RedisOptions, ReplicaOptions, WarningName } from "./options.ts";

const TRAITS: Traits = {
  lease: { claim: true },
  manyKeys: true,
  permits: "any",
  fencing: true,
  fifo: true,
  durability: "restart",
  recall: "push",
};

/**
 * Creates a driver for Redis (tested with 7.0): a single server, a master behind Sentinels, or a Cluster (Redis 7).
 * `client`: a client of ioredis (5, 6), iovalkey or redis (node-redis 5, 6), connected or connecting, which the driver
 * never closes; or a function that creates one, which the driver closes. The driver opens one more connection for pushes;
 * in a Cluster one to each master.
 * @throws TypeError naming the argument if the client or an option is invalid
 */
export function redis(
  client: RedisClient | (() => RedisClient | Promise<RedisClient>),
  options: RedisOptions = {},
): Driver {
  const ownsClient = typeof client === "function";
  if (!ownsClient) adaptClient(client);
  validateRedisOptions(options);
  return new RedisDriver(ownsClient ? client : () => client, ownsClient, options);
}

interface Renewal {
  readonly claim: Claim;
  /** How many tokens it should have in all; 0: as many as it has. */
  readonly tokenCount: number;
}

/** The calls of driver.claim for one claim that have no reply yet. */
interface ClaimCalls {
  pendingCount: number;
  /** Whether the claim was released while calls were pending. */
  isReleased: boolean;
}

class RedisDriver implements Driver {
  readonly name = "redis";
  readonly releasesPerCall: number = ITEMS_PER_COMMAND;
  readonly #makeClient: () => RedisClient | Promise<RedisClient>;
  readonly #ownsClient: boolean;
  readonly #options: RedisOptions;
  /** The prefix of all keys and channels except the layout key: "holdfast:3:". */
  readonly #namePrefix: string;
  /** The routing keys by bucket: at most 256. Made once, since each call looks several things up by them. */
  readonly #routingKeys = new Map<string, string>();
  /** Set in a Cluster: one call reaches one bucket. */
  shardOf?: (claim: Claim) => string;
  readonly #guard: DataLossGuard;
  /** null: guardDataLoss is off. */
  readonly #maxTtlMs: number | null;
  readonly #warn: (warning: string) => void;
  /** Claims whose `claim` call may still reach the server: a client library may hold it back for long. */
  readonly #claimCalls = new SlotMap<ClaimId, ClaimCalls>();
  /** A release that timed out may still grant waiters of this process, and only its late reply says so. */
  readonly #lateReleaseReply: LateReply = {
    onTimeout: () => undefined,
    onLateReply: () => this.#events?.reconnected(),
  };
  readonly #batches: CommandBatches;
  readonly #lostReleases: LostReleases;
  readonly #recentReleases = new RecentReleases();
  #connection: Connection | null = null;
  /** null: not open. */
  #events: DriverEvents | null = null;

  constructor(makeClient: () => RedisClient | Promise<RedisClient>, ownsClient: boolean, options: RedisOptions) {
    this.#makeClient = makeClient;
    this.#ownsClient = ownsClient;
    this.#options = options;
    this.#namePrefix = toNamePrefix(options);
    this.#warn = resolveWarn(options.warn);
    this.#maxTtlMs = resolveMaxTtlMs(options.guardDataLoss);
    // with the option replicas a claim may fail for want of them after its command: a release must not fail with it
    this.#batches = new CommandBatches(
      this.#sendBatch,
      (push, isAnswer) => this.#onPush(push, isAnswer),
      () => this.#readyConnection.epoch,
      options.replicas !== undefined,
    );
    this.#lostReleases = new LostReleases(options.clock ?? systemClock, (id, bucketAndKey) => {
      const bucket = this.#readyConnection.isCluster ? bucketAndKey.slice(0, 2) : "00";
      const item = encodeGiveBackItem(id, bucketAndKey);
      this.#batches.release(this.#routingKeyOf(bucket), [item], this.#lateReleaseReply).catch(() => undefined);
    });
    this.#guard = new DataLossGuard({
      driverName: "redis",
      storeName: "the server",
      maxTtlMs: this.#maxTtlMs,
      warn: this.#warn,
      onLoss: () => {
        this.#events?.disconnected();
        this.#events?.reconnected();
      },
      heldTokens: (id) => this.#events?.heldTokens(id) ?? null,
    });
  }

  async open(events: DriverEvents): Promise<Traits> {
    const connection = new Connection(adaptClient(await this.#makeClient()), this.#ownsClient, this.#options, {
      onPush: (message, isAnswer) => this.#onPush(message, isAnswer),
      onDisconnected: () => this.#events?.disconnected(),
      onMissed: () => {
        this.#lostReleases.onBreak((id) => this.#recentReleases.has(id));
        this.#events?.reconnected();
      },
    });
    try {
      await connectAndVerify(connection, this.#options, async () => {
        const runScript: RunScript = (script, routingKey, args) => connection.runScript(script, routingKey, args);
        const toHeader = (routingKey: string): readonly string[] => this.#scriptHeader(routingKey, connection);
        if (this.#maxTtlMs !== null) {
          const remainingMs = await checkRunRecords(this.#namePrefix, runScript, toHeader, connection.isCluster);
          this.#guard.onOpen(remainingMs, this.#options.silenceWarnings);
        }
        const queries = createQueries(connection, this.#namePrefix);
        const checks = await diagnoseAll(queries, this.#diagnosticsContext(connection));
        for (const warning of formatWarnings("redis", checks, this.#options.silenceWarnings)) this.#warn(warning);
      });
    } catch (error) {
      connection.close();
      throw error;
    }
    this.#events = events;
    this.#connection = connection;
    if (!connection.isCluster) return TRAITS;
    this.shardOf = toClaimBucket;
    return { ...TRAITS, manyKeys: false };
  }

  async claim(claim: Claim): Promise<Answer> {
    const { id } = claim;
    this.#guard.checkTtl(claim);
    this.#recentReleases.onClaim(id);
    const routingKey = this.#routingKeyOf(toClaimBucket(claim));
    const connection = this.#readyConnection;
    // subscribe before the first wait in a bucket: an unreachable waiter would be passed over
    const subscribed = claim.wait || claim.recall === true ? connection.ensureSubscribed(routingKey) : null;
    if (subscribed !== null && claim.wait) await subscribed;
    else subscribed?.catch(() => undefined); // without it a recall comes with the next renewal
    const calls = this.#claimCalls.get(id) ?? { pendingCount: 0, isReleased: false };
    this.#claimCalls.set(id, calls);
    calls.isReleased = false; // the quorum driver may claim a released id again
    calls.pendingCount++;
    let hasTimedOut = false;
    const onSettled = (): void => {
      if (--calls.pendingCount === 0) this.#claimCalls.delete(id);
    };
    const onTimeout = (): void => {
      hasTimedOut = true;
    };
    const onLateReply = (): void => {
      onSettled();
      // released while it was on its way: it may have entered the queue after the release, so release it again
      if (calls.isReleased) this.release([{ claim, hasUnansweredClaim: true }]).catch(() => undefined);
    };
    const item = encodeClaimItem(claim, this.#options.label);
    const batchKey = connection.isCluster ? routingKey : this.#routingKeyOf("00");
    let reply: string;
    try {
      reply = await this.#batches.claim(batchKey, item, { onLateReply, onTimeout });
    } finally {
      if (!hasTimedOut) onSettled();
    }
    const answer = decodeAnswer(reply, "redis");
    this.#guard.onAnswers([claim], [answer], [reply]);
    return this.#lostReleases.toRecheckEarly(answer, true);
  }

  async renew(claims: readonly Claim[], tokenCounts: readonly number[] = []): Promise<readonly (Answer | undefined)[]> {
    const renewals = claims.map((claim, index) => ({ claim, tokenCount: tokenCounts[index] ?? 0 }));
    if (!this.#readyConnection.isCluster) return this.#renewBatch(renewals);
    const toRenewalBucket = ({ claim }: Renewal): string => toClaimBucket(claim);
    const { answers, failures } = await settlePerBucket(renewals, toRenewalBucket, (_, batch) =>
      this.#renewBatch(batch),
    );
    if (answers.size === 0 && failures.length > 0) throw failures[0];
    return renewals.map((renewal) => answers.get(renewal));
  }

  /** `renewals`: those of one bucket in a Cluster. */
  async #renewBatch(renewals: readonly Renewal[]): Promise<readonly Answer[]> {
    const claims = renewals.map(({ claim }) => claim);
    const toRenewalBucket = ({ claim }: Renewal): string => toClaimBucket(claim);
    const encodeRenewal = ({ claim, tokenCount }: Renewal): string =>
      tokenCount > 0 ? `${encodeName(claim)}\n${tokenCount}` : encodeName(claim);
    const replies = await this.#runForMany(RENEW, renewals, toRenewalBucket, encodeRenewal);
    if (!Array.isArray(replies) || replies.length !== claims.length)
      throw new Error("redis: renew did not answer for every claim");
    const answers = replies.map((reply) => decodeAnswer(reply, "redis"));
    if (replies.some((reply) => isForgottenReply(reply) || isMissedGrantReply(reply))) {
      const toLostBucket = ({ claim }: LostClaim): string => toClaimBucket(claim);
      const encode = ({ claim, token, tokenCount }: LostClaim): string =>
        `${token} ${encodeClaim({ ...claim, tokenCount, floor: token }, this.#options.label)}`;
      await this.#guard.restoreLost(claims, replies, answers, (lost) =>
        this.#runForMany(RESTORE, lost, toLostBucket, encode),
      );
    }
    this.#guard.onAnswers(claims, answers, replies);
    return answers.map((answer) => this.#lostReleases.toRecheckEarly(answer, false));
  }

  async release(releases: readonly Release[]): Promise<readonly boolean[]> {
    for (const { claim } of releases) {
      const calls = this.#claimCalls.get(claim.id);
      if (calls !== undefined) calls.isReleased = true;
      this.#recentReleases.onRelease(claim.id);
    }
    const { epoch, isCluster } = this.#readyConnection;
    const sendTo = (bucket: string, batch: readonly Release[]): Promise<readonly string[]> =>
      this.#batches.release(this.#routingKeyOf(bucket), batch.map(encodeReleaseItem), this.#lateReleaseReply);
    const answers = isCluster ? await callPerBucket(releases, toReleaseBucket, sendTo) : await sendTo("00", releases);
    // the library may have sent the command twice; the second call found nothing although the first succeeded
    if (epoch !== this.#readyConnection.epoch)
      throw new Error("redis: the connection broke while a release was under way");
    for (const { claim } of releases) {
      this.#recentReleases.onReleased(claim.id);
      this.#lostReleases.onReleased(claim);
    }
    return answers.map((answer) => answer === "1");
  }

  detach(claims: readonly Claim[], remainingMs?: number): Promise<readonly boolean[]> {
    const toRemainingMs = ({ ttlMs }: Claim): string =>
      String(remainingMs === undefined ? ttlMs : Math.ceil(remainingMs));
    return this.#callForFlags(DETACH, claims, toClaimBucket, (claim) => `${toRemainingMs(claim)} ${encodeName(claim)}`);
  }

  revoke(
    targets: readonly { readonly key: string; readonly token: bigint; readonly now: boolean }[],
  ): Promise<readonly boolean[]> {
    const toTargetBucket = ({ key }: { readonly key: string }): string => toBucket(key);
    return this.#callForFlags(REVOKE, targets, toTargetBucket, (target) => {
      const { key, token, now } = target;
      return `${now ? "1" : "0"}${toTargetBucket(target)}${key}\n${token}`;
    });
  }

  async list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
    const connection = this.#readyConnection;
    // behind the claims and releases that were made before it
    this.#batches.sendAll();
    const runScript: RunScript = async (script, routingKey, args) => {
      options.signal?.throwIfAborted();
      return connection.runScript(script, routingKey, args);
    };
    return listClaims(runScript, this.#namePrefix, query, options, connection.isCluster);
  }

  async diagnose(): Promise<readonly Check[]> {
    const queries = createQueries(this.#readyConnection, this.#namePrefix);
    const context = this.#diagnosticsContext(this.#readyConnection);
    return [
      ...(await diagnoseAll(queries, context)),
      await findKeysWithoutTtl(queries, context),
      ...this.#guard.diagnose(),
    ];
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#connection?.close();
  }

  #diagnosticsContext({ isCluster, address }: Connection): DiagnosticsContext {
    const isGuarded = this.#maxTtlMs !== null;
    const layoutKey = toLayoutKey(this.#options);
    const isPermanentKey = (key: string): boolean => key === layoutKey || isRunRecordKey(key);
    const replicaAcks = this.#options.replicas?.minAcks ?? 0;
    const hasFailover = isCluster || address.isViaSentinel;
    return {
      prefix: this.#namePrefix.slice(0, -LAYOUT_VERSION.length - 1),
      isPermanentKey,
      hasFailover,
      isGuarded,
      replicaAcks,
    };
  }

  get #readyConnection(): Connection {
    if (this.#connection === null) throw new Error("redis: the driver is not open");
    return this.#connection;
  }

  /** The first arguments of every script that changes queues. */
  #scriptHeader(routingKey: string, connection: Connection = this.#readyConnection): readonly string[] {
    return [
      this.#namePrefix,
      connection.inboxChannel(routingKey),
      encodeRunRecord(this.#namePrefix, this.#maxTtlMs, routingKey, connection.isCluster),
    ];
  }

  /** Also routes the calls of other buckets to a single server, which executes the items of all buckets in one command. */
  #routingKeyOf(bucket: string): string {
    let routingKey = this.#routingKeys.get(bucket);
    if (routingKey === undefined) {
      routingKey = toRoutingKey(this.#namePrefix, bucket);
      this.#routingKeys.set(bucket, routingKey);
    }
    return routingKey;
  }

  readonly #sendBatch: SendBatch = (routingKey, items, lateReply) =>
    this.#readyConnection.runScript(TURN, routingKey, [...this.#scriptHeader(routingKey), ...items], lateReply);

  /** One call for many items. In a Cluster they must be of one bucket. */
  #runForMany<T>(
    script: Script,
    items: readonly T[],
    toBucket: (item: T) => string,
    encode: (item: T) => string,
  ): Promise<unknown> {
    const first = items[0];
    const routingKey = this.#routingKeyOf(first === undefined ? "00" : toBucket(first));
    return this.#readyConnection.runScript(script, routingKey, [
      ...this.#scriptHeader(routingKey),
      ...items.map(encode),
    ]);
  }

  /** Calls a script that answers yes or no for each item; in a Cluster one call for each bucket. */
  async #callForFlags<T>(
    script: Script,
    items: readonly T[],
    toBucket: (item: T) => string,
    encode: (item: T) => string,
  ): Promise<boolean[]> {
    const connection = this.#readyConnection;
    const callBatch = async (batch: readonly T[]): Promise<boolean[]> =>
      decodeFlags(await this.#runForMany(script, batch, toBucket, encode), batch.length, "redis").flags;
    if (!connection.isCluster || items.length < 2) return callBatch(items);
    return callPerBucket(items, toBucket, (_, batch) => callBatch(batch));
  }

  #onPush(message: string, isAnswer: boolean): void {
    const push = decodePush(message);
    if (push === null) return;
    if (this.#recentReleases.has(push.id)) return this.#lostReleases.onPush(message);
    if (push.isRecall === true) return this.#events?.recalled(push.id);
    // with the option replicas a push is only a hint: the recheck waits for the replicas
    const isTrusted = isAnswer && this.#options.replicas === undefined;
    if (push.answer !== undefined && isTrusted) this.#events?.pushed(push.id, push.answer);
    else this.#events?.recheck(push.id);
  }
}

/**
 * Groups items by bucket, since one call reaches one bucket in a Cluster. Resolves to their answers in the same order.
 * @throws the first error, when all calls have settled
 */
async function callPerBucket<T, R>(
  items: readonly T[],
  toBucket: (item: T) => string,
  call: (bucket: string, batch: readonly T[]) => Promise<readonly R[]>,
): Promise<R[]> {
  const { answers, failures } = await settlePerBucket(items, toBucket, call);
  if (failures.length > 0) throw failures[0];
  return items.map((item) => answers.get(item) as R);
}

/** Like callPerBucket, with the answers and the errors of all calls. */
async function settlePerBucket<T, R>(
  items: readonly T[],
  toBucket: (item: T) => string,
  call: (bucket: string, batch: readonly T[]) => Promise<readonly R[]>,
): Promise<{ readonly answers: ReadonlyMap<T, R>; readonly failures: readonly unknown[] }> {
  const byBucket = new Map<string, T[]>();
  for (const item of items) {
    const sameBucket = byBucket.get(toBucket(item));
    if (sameBucket === undefined) byBucket.set(toBucket(item), [item]);
    else sameBucket.push(item);
  }
  const batches = [...byBucket];
  const results = await Promise.allSettled(batches.map(([bucket, batch]) => call(bucket, batch)));
  const answers = new Map<T, R>();
  const failures: unknown[] = [];
  for (const [batchIndex, result] of results.entries()) {
    if (result.status === "rejected") failures.push(result.reason);
    else
      for (const [itemIndex, item] of (batches[batchIndex] as [string, T[]])[1].entries())
        answers.set(item, result.value[itemIndex] as R);
  }
  return { answers, failures };
}

function toReleaseBucket({ claim }: Release): string {
  return toClaimBucket(claim);
}
