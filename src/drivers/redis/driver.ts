/**
 * The Redis driver. Lua scripts keep the queues of keys (see lua/lib/prelude.lua); each operation is one round trip,
 * and the claims and releases of one turn of the event loop share one (command-batches.ts). The script that releases a
 * lock also grants it to the next waiter and publishes the grant to the inbox channel of the waiter's process.
 *
 * What sees the answer to a claim, in this order:
 *   1 connection.ts       is it in time? is it that of the database of the locks? do enough replicas have the grant (replica-acks.ts)?
 *   2 command-batches.ts  gives the pushes of its reply to #onPush(), then each call its own answer
 *   3 claim-calls.ts      if it is late, and the claim was released meanwhile: releases it again
 *   4 DataLossGuard       does it show that the server has lost data?
 *   5 lost-releases.ts    after a break: a waiting claim rechecks early
 * Answers to renewals pass 1, 4 and 5. Pushes come with a reply or from subscriptions.ts; lost-releases.ts takes those
 * about released claims. A break of the connection is a change of `connection.epoch`: a release that was under way
 * fails, since the client library may have sent it twice, and no push counts as an answer until its inbox is verified
 * in the new epoch.
 */

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
} from "../../spi/driver.ts";
import { systemClock } from "../../util/clock.ts";
import type { LostClaim } from "../data-loss-guard.ts";
import { DataLossGuard, resolveMaxTtlMs } from "../data-loss-guard.ts";
import { decodeAnswer, decodeFlags, decodePush, isForgottenReply, isMissedGrantReply } from "../reply-codec.ts";
import { formatWarnings, resolveWarn } from "../warnings.ts";
import { ClaimCalls } from "./claim-calls.ts";
import { adaptClient } from "./clients/detect.ts";
import type { RedisClient } from "./clients/types.ts";
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
 * never closes; or a function that creates one, which the driver closes. The driver opens one more connection for
 * pushes; in a Cluster one to each master.
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

/** What exists once the driver is open. */
interface Link {
  readonly connection: Connection;
  readonly batches: CommandBatches;
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
  readonly #claimCalls = new ClaimCalls((claim) => {
    this.release([{ claim, hasUnansweredClaim: true }]).catch(() => undefined);
  });
  /** A release that timed out may still grant waiters of this process, and only its late reply says so. */
  readonly #lateReleaseReply: LateReply = {
    onTimeout: () => undefined,
    onLateReply: () => this.#events?.reconnected(),
  };
  readonly #lostReleases: LostReleases;
  /** null: it was never open. */
  #link: Link | null = null;
  /** null: not open. */
  #events: DriverEvents | null = null;

  constructor(makeClient: () => RedisClient | Promise<RedisClient>, ownsClient: boolean, options: RedisOptions) {
    this.#makeClient = makeClient;
    this.#ownsClient = ownsClient;
    this.#options = options;
    this.#namePrefix = toNamePrefix(options);
    this.#warn = resolveWarn(options.warn);
    this.#maxTtlMs = resolveMaxTtlMs(options.guardDataLoss);
    this.#lostReleases = new LostReleases(options.clock ?? systemClock, (id, bucketAndKey) => {
      const { connection, batches } = this.#openLink;
      const bucket = connection.isCluster ? bucketAndKey.slice(0, 2) : "00";
      const item = encodeGiveBackItem(id, bucketAndKey);
      batches.release(this.#routingKeyOf(bucket), [item], this.#lateReleaseReply).catch(() => undefined);
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
        this.#lostReleases.onBreak();
        this.#events?.reconnected();
      },
    });
    const toHeader = (routingKey: string): readonly string[] => this.#scriptHeader(routingKey, connection);
    try {
      await connectAndVerify(connection, this.#options, async () => {
        const runScript: RunScript = (script, routingKey, args) => connection.runScript(script, routingKey, args);
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
    // with the option replicas a claim may fail for want of them after its command: a release must not fail with it
    const isSplit = this.#options.replicas !== undefined;
    const onPush = (message: string, isAnswer: boolean): void => this.#onPush(message, isAnswer);
    this.#link = { connection, batches: new CommandBatches(connection, toHeader, onPush, isSplit) };
    if (!connection.isCluster) return TRAITS;
    this.shardOf = toClaimBucket;
    return { ...TRAITS, manyKeys: false };
  }

  async claim(claim: Claim): Promise<Answer> {
    this.#guard.checkTtl(claim);
    this.#lostReleases.onClaim(claim.id);
    const routingKey = this.#routingKeyOf(toClaimBucket(claim));
    const { connection, batches } = this.#openLink;
    // subscribe before the first wait in a bucket: an unreachable waiter would be passed over
    const subscribed = claim.wait || claim.recall === true ? connection.ensureSubscribed(routingKey) : null;
    if (subscribed !== null && claim.wait) await subscribed;
    else subscribed?.catch(() => undefined); // without it a recall comes with the next renewal
    const call = this.#claimCalls.start(claim);
    const item = encodeClaimItem(claim, this.#options.label);
    const batchKey = connection.isCluster ? routingKey : this.#routingKeyOf("00");
    let reply: string;
    try {
      reply = await batches.claim(batchKey, item, call);
    } finally {
      call.onSettled();
    }
    const answer = decodeAnswer(reply, "redis");
    this.#guard.onAnswers([claim], [answer], [reply]);
    return this.#lostReleases.toRecheckEarly(answer, true);
  }

  async renew(claims: readonly Claim[], tokenCounts: readonly number[] = []): Promise<readonly (Answer | undefined)[]> {
    const renewals = claims.map((claim, index) => ({ claim, tokenCount: tokenCounts[index] ?? 0 }));
    if (!this.#openLink.connection.isCluster) return this.#renewBatch(renewals);
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
      this.#claimCalls.onRelease(claim.id);
      this.#lostReleases.onRelease(claim.id);
    }
    const { connection, batches } = this.#openLink;
    const { epoch, isCluster } = connection;
    const sendTo = (bucket: string, batch: readonly Release[]): Promise<readonly string[]> =>
      batches.release(this.#routingKeyOf(bucket), batch.map(encodeReleaseItem), this.#lateReleaseReply);
    const answers = isCluster ? await callPerBucket(releases, toReleaseBucket, sendTo) : await sendTo("00", releases);
    // the library may have sent the command twice; the second call found nothing although the first succeeded
    if (epoch !== connection.epoch) throw new Error("redis: the connection broke while a release was under way");
    for (const { claim } of releases) this.#lostReleases.onReleased(claim);
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
    const { connection, batches } = this.#openLink;
    // behind the claims and releases that were made before it
    batches.sendAll();
    const runScript: RunScript = async (script, routingKey, args) => {
      options.signal?.throwIfAborted();
      return connection.runScript(script, routingKey, args);
    };
    return listClaims(runScript, this.#namePrefix, query, options, connection.isCluster);
  }

  async diagnose(): Promise<readonly Check[]> {
    const { connection } = this.#openLink;
    const queries = createQueries(connection, this.#namePrefix);
    const context = this.#diagnosticsContext(connection);
    return [
      ...(await diagnoseAll(queries, context)),
      await findKeysWithoutTtl(queries, context),
      ...this.#guard.diagnose(),
    ];
  }

  async close(): Promise<void> {
    this.#events = null;
    this.#link?.connection.close();
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

  get #openLink(): Link {
    if (this.#link === null) throw new Error("redis: the driver is not open");
    return this.#link;
  }

  /** The first arguments of every script that changes queues. */
  #scriptHeader(routingKey: string, connection: Connection): readonly string[] {
    return [
      this.#namePrefix,
      connection.inboxChannel(routingKey),
      encodeRunRecord(this.#namePrefix, this.#maxTtlMs, routingKey, connection.isCluster),
    ];
  }

  /**
   * Also routes the calls of other buckets to a single server, which executes the items of all buckets in one command.
   */
  #routingKeyOf(bucket: string): string {
    let routingKey = this.#routingKeys.get(bucket);
    if (routingKey === undefined) {
      routingKey = toRoutingKey(this.#namePrefix, bucket);
      this.#routingKeys.set(bucket, routingKey);
    }
    return routingKey;
  }

  /** One call for many items. In a Cluster they must be of one bucket. */
  #runForMany<T>(
    script: Script,
    items: readonly T[],
    toBucket: (item: T) => string,
    encode: (item: T) => string,
  ): Promise<unknown> {
    const { connection } = this.#openLink;
    const first = items[0];
    const routingKey = this.#routingKeyOf(first === undefined ? "00" : toBucket(first));
    return connection.runScript(script, routingKey, [
      ...this.#scriptHeader(routingKey, connection),
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
    const { isCluster } = this.#openLink.connection;
    const callBatch = async (batch: readonly T[]): Promise<boolean[]> =>
      decodeFlags(await this.#runForMany(script, batch, toBucket, encode), batch.length, "redis").flags;
    if (!isCluster || items.length < 2) return callBatch(items);
    return callPerBucket(items, toBucket, (_, batch) => callBatch(batch));
  }

  #onPush(message: string, isAnswer: boolean): void {
    const push = decodePush(message);
    if (push === null || this.#lostReleases.onPush(push)) return;
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
