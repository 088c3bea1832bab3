/**
 * ZooKeeper as a store: one ephemeral sequential node per claim, ordered by its number; a waiting claim watches only
 * the node that blocks it (Hunt et al., "ZooKeeper", 2010, 2.4). The lease is the session's: all claims of a client end
 * together with its session.
 *
 * Invariants
 * - A claim has at most one node in this client's session: after a create without an answer, the node is looked up by
 *   the claim's id before another create is sent (client/connection.ts never sends a request twice).
 * - "held" is answered only for a node that was seen in its queue in this session, and never for longer than the
 *   session lasts by this client's clock (client/session-timer.ts).
 * - A claim held at close() was not released, so its holder may still rely on it: the session is left to expire.
 * - A released claim never keeps a node: a release looks for the node of every unanswered create, on the same
 *   connection.
 */

import { countAdmitted } from "../../lock-table/admission.ts";
import type {
  Answer,
  Claim,
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
import { StoreRefusedError } from "../../spi/driver.ts";
import { systemClock } from "../../util/clock.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import { RevisionTokens } from "../revision-tokens.ts";
import type { ClaimNode } from "./claim-nodes.ts";
import { ClaimNodes } from "./claim-nodes.ts";
import { ConnectionLossError, hasCode, isPermanent, toFatalError, ZooKeeperError } from "./client/errors.ts";
import { makeChroot, makePath } from "./client/helpers.ts";
import { validatePath } from "./client/paths.ts";
import { CREATOR_ALL, OPEN_TO_ALL } from "./client/records.ts";
import type { SessionEvents } from "./client/zookeeper.ts";
import { DEFAULT_SESSION_MS, ZooKeeper } from "./client/zookeeper.ts";
import { diagnose } from "./diagnostics.ts";
import { KeyNodes } from "./key-nodes.ts";
import { listClaims } from "./list.ts";
import { decodeData, REVOKE_DATA } from "./node-data.ts";
import type { ParsedQueue } from "./node-names.ts";
import { toKeyPath } from "./node-names.ts";
import { NodeWatches } from "./node-watches.ts";
import { NodeWrites } from "./node-writes.ts";
import type { ZooKeeperDriverOptions } from "./options.ts";
import { validateZooKeeperOptions } from "./options.ts";
import { NodeQueues } from "./queue.ts";
import { QueueReads } from "./queue-reads.ts";
import { RecallWatches } from "./recall-watches.ts";

export type { Acl } from "./client/records.ts";
export type { SaslOptions } from "./client/sasl.ts";
export type { RetryPolicy, ServerAddress } from "./client/server-list.ts";
export { exponential } from "./client/server-list.ts";
export type { TlsOptions } from "./client/zookeeper.ts";
export type { Family } from "./node-names.ts";
export type { ZooKeeperDriverOptions } from "./options.ts";

/**
 * Locks on a ZooKeeper ensemble.
 * @throws TypeError naming the option that is wrong
 */
export function zookeeper(options: ZooKeeperDriverOptions): Driver {
  validateZooKeeperOptions(options);
  const { root = "/holdfast", clock = systemClock, tokenBase = 0n } = options;
  const { family = "mutex", fair: isFair = true } = options;
  const hasCredentials = options.sasl !== undefined || (options.auth ?? []).length > 0;
  let acl = options.acl ?? (hasCredentials ? CREATOR_ALL : OPEN_TO_ALL);
  const zk = new ZooKeeper(options);
  const claimNodes = new ClaimNodes(root, (node) => recallWatches.remove(node));
  let driverEvents: DriverEvents | null = null;
  const watches = new NodeWatches(zk, claimNodes, (id) => driverEvents?.recheck(id));
  const recallWatches = new RecallWatches(zk, family, (id) => driverEvents?.recalled(id));
  const keyNodes = new KeyNodes(zk, () => acl);
  const reads = new QueueReads(zk, family);
  const writes = new NodeWrites({ zk, claimNodes, reads, watches, acl: () => acl, family });
  const tokens = new RevisionTokens(tokenBase);
  const queues = new NodeQueues({
    ...{ zk, claimNodes, keyNodes, reads, writes, watches, recallWatches, isFair, tokens, family },
    random: Math.random,
  });

  return {
    name: "zookeeper",

    async open(events): Promise<Traits> {
      const sessionEvents: SessionEvents = {
        // events may have been missed: watches are set again, and the client rechecks its claims
        onConnected: () => driverEvents?.reconnected(),
        onSuspended() {
          driverEvents?.disconnected();
          // the recheck fails, so the client notifies its holders
          driverEvents?.reconnected();
        },
        onExpired() {
          claimNodes.endSession();
          zk.keepAlive(false);
          driverEvents?.disconnected();
          driverEvents?.reconnected();
        },
      };
      let mayHaveCertificate = options.acl === undefined && options.tls !== undefined;
      await openClient(zk, sessionEvents, toConnectTimeoutMs(options.connectTimeout), async () => {
        // asked once: a server that does not know the request ends the connection
        if (mayHaveCertificate && (await hasCertificate(zk))) acl = CREATOR_ALL;
        mayHaveCertificate = false;
        await makeChroot(zk, acl);
        await makePath(zk, root, acl);
      });
      driverEvents = events;
      const traits = { manyKeys: false, permits: "any", fencing: true, durability: "failover" } as const;
      // unfair claims wait without a node, so no holder sees them
      const recall = isFair ? "push" : false;
      return { ...traits, lease: { claim: false, sessionMs: zk.sessionMs }, fifo: isFair, recall };
    },

    async claim(claim: Claim): Promise<Answer> {
      validateKeyPath(claim);
      await zk.waitConnected();
      const node = claimNodes.getOrCreate(claim);
      zk.keepAlive(claimNodes.isBusy);
      if (node.status === "ended") return node.noneAnswer;
      try {
        const answer = await queues.ensureQueued(node);
        if (answer.state !== "waiting" || claim.wait) return answer;
        await writes.delete(node);
        return { state: "none" };
      } catch (error) {
        throw await writes.toFatalOrCleanUp(error, node);
      }
    },

    async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
      const nodes = claims.map((claim) => claimNodes.find(claim));
      const hasLive = nodes.some((node) => node !== null && node.status !== "ended");
      // fail at once, so that holders learn that their session is in danger
      if (hasLive && !zk.isConnected) throw new ConnectionLossError(false, "ZooKeeper: no server is connected");
      // One request proves the session for all held claims. It must be a sync, which the leader answers: a server that
      // has lost its leader answers reads and pings for a while, in which the session may end and its nodes be deleted.
      const held = nodes.filter((node) => node?.isGranted && node.status === "present") as ClaimNode[];
      if (held.length > 0) await Promise.all([zk.sync("/"), watches.confirmOne(held)]);
      for (const node of nodes)
        if (node?.isGranted && !node.isWatched && node.pendingCheck === null) watches.watchOwnNode(node);
      // events of changes before the sync came before its answer: wait for the checks they started
      await Promise.all(nodes.map((node) => node?.pendingCheck ?? Promise.resolve()));
      await Promise.all(held.map((node) => recallWatches.settle(node)));
      // the names read below show only nodes that exist by now: remember which nodes those are
      const namesAtRead = new Map<ClaimNode, string>();
      for (const node of nodes) if (node !== null && isWaitingInQueue(node)) namesAtRead.set(node, node.name);
      const queuesByPath = await readQueues([...new Set([...namesAtRead.keys()].map(({ keyPath }) => keyPath))]);
      return Promise.all(
        nodes.map(async (node): Promise<Answer | undefined> => {
          if (node === null) return { state: "none" };
          try {
            if (node.isDeletePending) return await releaseNode(node);
            if (node.isOutcomeUnknown) return await queues.ensureQueued(node);
            if (node.status === "outside") return await queues.retryUnfair(node);
            if (node.status !== "present" || node.grant === "revoked") return node.noneAnswer;
            if (node.grant === "held") return queues.toHeldAnswer(node);
            if (namesAtRead.get(node) !== node.name) return await queues.ensureQueued(node);
            // a queue that could not be read is read again for this claim alone, which reports the refusal
            const parsed = queuesByPath.get(node.keyPath);
            return parsed === undefined ? await queues.ensureQueued(node) : await queues.statusFrom(node, parsed);
          } catch (error) {
            // a connection error concerns all claims; other errors concern this one
            if (!(error instanceof StoreRefusedError || error instanceof ZooKeeperError)) throw error;
            if (error instanceof StoreRefusedError || isPermanent(error)) return releaseNode(node);
            return undefined;
          }
        }),
      );
    },

    async release(releases: readonly Release[]): Promise<readonly boolean[]> {
      const nodes = releases.map(({ claim }) => claimNodes.getOrCreate(claim));
      // a release keeps no process alive
      for (const node of nodes) if (node.status !== "ended") claimNodes.setIdle(node, true);
      zk.keepAlive(claimNodes.isBusy);
      return Promise.all(nodes.map((node) => deleteNode(writes, keyNodes, node)));
    },

    setIdle(claim, isIdle) {
      const node = claimNodes.findById(claim.id);
      if (node !== undefined) claimNodes.setIdle(node, isIdle);
      zk.keepAlive(claimNodes.isBusy);
    },

    async revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
      await zk.waitConnected();
      return Promise.all(
        targets.map((target) =>
          revokeTarget(target).catch((error: unknown) => {
            throw toFatalError(error);
          }),
        ),
      );
    },

    async list(query: ListQuery, options: ListOptions): Promise<Page<ClaimView>> {
      // no await if connected: so the list is sent before a release that the caller makes next
      if (!zk.isConnected) await zk.waitConnected();
      return listClaims({ zk, root, family, tokens, claimNodes, wall: () => clock.wall() }, query, options);
    },

    diagnose: () => diagnose(zk, root, options.sessionMs ?? DEFAULT_SESSION_MS),

    async close() {
      driverEvents = null;
      const nodes = claimNodes.all();
      if (!nodes.some(({ isGranted }) => isGranted)) return zk.close();
      // a proxy's clients have not released their claims: the session stays, and their own clocks end first
      const waiting = zk.isConnected ? nodes.filter(({ isGranted }) => !isGranted) : [];
      await Promise.allSettled(waiting.map((node) => writes.delete(node)));
      await zk.abandonSession();
    },
  };

  /** Deletes the node, so that the claim is made again; that call then reports why it is refused. */
  async function releaseNode(node: ClaimNode): Promise<Answer> {
    await deleteNode(writes, keyNodes, node);
    return { state: "none" };
  }

  /** The queue at each path; paths that the servers refuse to read are left out. */
  async function readQueues(keyPaths: readonly string[]): Promise<Map<string, ParsedQueue>> {
    const queuesByPath = new Map<string, ParsedQueue>();
    const readInto = async (keyPath: string): Promise<void> => {
      try {
        queuesByPath.set(keyPath, await reads.readOrEmpty(keyPath));
      } catch (error) {
        if (!(error instanceof ZooKeeperError)) throw error;
      }
    };
    await Promise.all(keyPaths.map(readInto));
    return queuesByPath;
  }

  async function revokeTarget({ key, token, now }: RevokeTarget): Promise<boolean> {
    const keyPath = toKeyPath(key, root);
    const { queue } = await reads.readOrEmpty(keyPath);
    const revoked = await Promise.all(
      queue.slice(0, countAdmitted(queue)).map(async ({ name }) => {
        const path = `${keyPath}/${name}`;
        try {
          const { data, stat } = await zk.get(path);
          if (!tokens.has(stat.czxid, decodeData(data)?.tokens ?? 1, token)) return false;
          if (!now && REVOKE_DATA.equals(data)) return false; // already revoked
          // setting the data first shows the holder's watch why the node is gone
          await zk.multi([
            { kind: "set", path, data: REVOKE_DATA },
            ...(now ? [{ kind: "delete" as const, path }] : []),
          ]);
          return true;
        } catch (error) {
          if (!hasCode(error, "NO_NODE")) throw error;
          return false;
        }
      }),
    );
    return revoked.includes(true);
  }
}

function isWaitingInQueue(node: ClaimNode): boolean {
  return node.status === "present" && node.grant === "waiting";
}

function validateKeyPath({ locks: [{ key }] }: Claim): void {
  if (!key.startsWith("/")) return;
  try {
    if (key === "/") throw new TypeError('key must name a node below the root, not "/"');
    validatePath(key, "key");
  } catch (error) {
    throw new StoreRefusedError(`zookeeper: ${(error as Error).message}`, { keys: [key], cause: error });
  }
}

/** Do the servers authenticate this client by its certificate? Servers before 3.7 cannot say. */
async function hasCertificate(zk: ZooKeeper): Promise<boolean> {
  try {
    return (await zk.whoAmI()).some(({ scheme }) => scheme === "x509");
  } catch (error) {
    if (!hasCode(error, "UNIMPLEMENTED")) throw error;
    return false;
  }
}

async function openClient(
  zk: ZooKeeper,
  events: SessionEvents,
  timeoutMs: number,
  prepare: () => Promise<void>,
): Promise<void> {
  try {
    await zk.open(events, timeoutMs, prepare);
  } catch (error) {
    await zk.close();
    throw toFatalError(error);
  }
}

/**
 * Deletes the node and says whether it existed. A node that this client may no longer delete stays as long as its
 * session.
 */
async function deleteNode(writes: NodeWrites, keyNodes: KeyNodes, node: ClaimNode): Promise<boolean> {
  try {
    return await writes.delete(node);
  } catch (error) {
    if (!isPermanent(error)) throw error;
    keyNodes.forget(node.keyPath);
    return false;
  }
}
