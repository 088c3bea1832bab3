/**
 * ZooKeeper as a store: an ephemeral sequential node a claim, in the order of its numbers; whoever waits watches only the
 * one that stands in its way (Hunt et al., "ZooKeeper", 2010, 2.4). Leases are the session's: all claims of a client end
 * together when its session does.
 *
 * Invariants
 * - A claim has at most one node in our session: a create without an answer is looked for by the claim's id before another
 *   one is sent (client/connection.ts never sends anything twice).
 * - "held" is answered only for a node that was seen in its line in this session, and never beyond what our own clock
 *   allows the session (client/session-clock.ts).
 * - What is held at close() was not given back, so somebody may still believe in it: its session is left to its time.
 * - A claim that was left never gets a node that stays: who releases looks behind every create on the same connection.
 */

import type { Clock } from "../../clock.ts";
import { systemClock } from "../../clock.ts";
import { admittedCount } from "../../core/line.ts";
import { shown } from "../../duration.ts";
import type { Answer, Claim, ClaimView, Driver, Notify, RevokeTarget, Traits } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import { AuthFailedError, ConnectionLossError, isRefusal } from "./client/errors.ts";
import { checkedPath } from "./client/paths.ts";
import { childrenOf, makePath } from "./client/recipes.ts";
import type { Acl } from "./client/records.ts";
import { CREATOR_ALL, OPEN_TO_ALL } from "./client/records.ts";
import type { RetryPolicy } from "./client/retry.ts";
import type { SaslOptions } from "./client/sasl.ts";
import type { ServerAddress } from "./client/servers.ts";
import type { TlsOptions } from "./client/wire.ts";
import type { SessionEvents } from "./client/zookeeper.ts";
import { DEFAULT_SESSION_MS, ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE, readData } from "./data.ts";
import { examined } from "./examine.ts";
import { Lines } from "./lines.ts";
import { listed } from "./listing.ts";
import type { Family } from "./names.ts";
import { folderOf, lineOf } from "./names.ts";
import type { NodePlace } from "./places.ts";
import { Places } from "./places.ts";
import { Placing } from "./placing.ts";
import { Watching } from "./watching.ts";

export type { Acl } from "./client/records.ts";
export type { RetryPolicy } from "./client/retry.ts";
export { exponential } from "./client/retry.ts";
export type { SaslOptions } from "./client/sasl.ts";
export type { ServerAddress } from "./client/servers.ts";
export type { TlsOptions } from "./client/wire.ts";
export type { Family } from "./names.ts";

/** How to reach an ensemble, and where locks stand in it. */
export interface ZooKeeperDriverOptions {
  /** At least one server; all of one ensemble. */
  readonly servers: readonly ServerAddress[];
  /** A node that stands before every path, as Curator's namespace does; made if need be. Default: none. */
  readonly chroot?: string;
  /** The node below which keys stand; made if need be. Keys that begin with "/" are paths themselves. Default "/holdfast". */
  readonly root?: string;
  /** How long the servers keep a client's claims without hearing of it, in milliseconds; they have bounds of their own. Default 30 s. */
  readonly sessionMs?: number;
  /** How long the first connection may take, in milliseconds. Default 5 s. */
  readonly connectTimeoutMs?: number;
  /** Added to every token: for locks that were moved here from a store with higher ones. Default 0n. */
  readonly tokenBase?: bigint;
  /** Credentials of ZooKeeper's own schemes, for instance digest and "user:password". Secrets. */
  readonly auth?: readonly { readonly scheme: string; readonly auth: string }[];
  /** SASL with DIGEST-MD5. */
  readonly sasl?: SaslOptions;
  /** Over TLS, with these options of node:tls; a function is asked for them before each connection: certificates are renewed. */
  readonly tls?: TlsOptions;
  /**
   * Whose names nodes bear, so that the locks of Java programs and ours exclude each other on one path: those of Curator's
   * InterProcessMutex, or those of its InterProcessReadWriteLock. Default "mutex".
   */
  readonly family?: Family;
  /**
   * false: a waiting claim keeps no place in line; it tries again, after a short random time, when whoever is in its way
   * has gone, and who comes later may be first. Default true.
   */
  readonly fair?: boolean;
  /** How long to rest before another connection is tried. Default: exponential(20, 1_000). */
  readonly retry?: RetryPolicy;
  /** Who may do what with our nodes. Default: if the servers know who we are, only we; else everybody. */
  readonly acl?: readonly Acl[];
  /** Time, for tests. */
  readonly clock?: Clock;
}

/**
 * Locks on a ZooKeeper ensemble.
 * @throws TypeError naming the option that is wrong
 */
export function zookeeper(options: ZooKeeperDriverOptions): Driver {
  const { root = "/holdfast", clock = systemClock, tokenBase = 0n, connectTimeoutMs = 5_000 } = options;
  const { family = "mutex", fair = true } = options;
  checkedPath(root, "root");
  checkedChoices(family, fair);
  const hasCredentials = options.sasl !== undefined || (options.auth ?? []).length > 0;
  let acl = options.acl ?? (hasCredentials ? CREATOR_ALL : OPEN_TO_ALL);
  const zk = new ZooKeeper(options);
  const places = new Places(root);
  let notify: Notify = () => undefined;
  const watching = new Watching(zk, places, (id) => notify(id));
  const lines = new Lines({ zk, places, acl: () => acl, tokenBase, family, watching });
  const placing = new Placing({ zk, lines, places, watching, fair, random: Math.random });

  return {
    name: "zookeeper",

    get traits(): Traits {
      const lease = { claim: false, sessionMs: zk.sessionMs };
      return { lease, manyKeys: false, permits: "any", fencing: true, fifo: fair, survives: "failover" };
    },

    async open(sink) {
      const events: SessionEvents = {
        // whatever was missed meanwhile: watches are set again, and the core asks
        connected: () => notify(null),
        // the core asks, hears nothing, and tells its holders
        suspended: () => notify(null),
        expired() {
          places.endAll();
          zk.need(false);
          notify(null);
        },
      };
      await opened(zk, events, connectTimeoutMs, async () => {
        if (options.acl === undefined && options.tls !== undefined && (await isCertified(zk))) acl = CREATOR_ALL;
        await zk.makeChroot(acl);
        await makePath(zk, root, acl, "persistent");
      });
      notify = sink;
    },

    async claim(claim: Claim): Promise<Answer> {
      checkedKeyPath(claim);
      await zk.reach();
      const place = places.of(claim);
      zk.need(places.size > 0);
      if (place.at === "gone") return place.none;
      try {
        const answer = await placing.placed(place);
        if (answer.state !== "waiting" || claim.wait) return answer;
        await placing.removed(place);
        return { state: "none" };
      } catch (error) {
        throw await placing.explained(error, place);
      }
    },

    async renew(claims: readonly Claim[]): Promise<readonly Answer[]> {
      const mine = claims.map((claim) => places.find(claim));
      const standing = mine.some((place) => place !== null && place.at !== "gone");
      // told at once, so that holders know that their session is at stake
      if (standing && !zk.isConnected) throw new ConnectionLossError(false, "ZooKeeper: no server is connected");
      // one question proves the session for all that are held
      if (mine.some((place) => place?.isHeld && place.at === "there")) await zk.exists(root);
      for (const place of mine) if (place?.isHeld && !place.isWatched && place.checking === null) watching.own(place);
      // what somebody did to our nodes before that was told before it was answered
      await Promise.all(mine.map((place) => place?.checking ?? Promise.resolve()));
      // what is read now tells of the nodes that are there by now, and of no later ones
      const nodes = new Map<NodePlace, string>();
      for (const place of mine) if (place !== null && isInLine(place)) nodes.set(place, place.name);
      const names = await namesOf([...new Set([...nodes.keys()].map(({ folder }) => folder))]);
      return Promise.all(
        mine.map(async (place): Promise<Answer> => {
          if (place === null) return { state: "none" };
          try {
            if (place.isUnsure) return await placing.placed(place);
            if (place.isAside) return await placing.tried(place);
            if (place.at !== "there" || place.revoked) return place.none;
            if (place.isHeld) return lines.held(place);
            if (nodes.get(place) !== place.name) return await placing.placed(place);
            return await placing.stood(place, names.get(place.folder) ?? []);
          } catch (error) {
            if (!(error instanceof FatalDriverError)) throw error;
            // the affair of one claim: out of line it is claimed anew, and that call says why it is refused
            await placing.removed(place);
            return { state: "none" };
          }
        }),
      );
    },

    async release(claims: readonly Claim[]): Promise<readonly boolean[]> {
      const there = await Promise.all(claims.map((claim) => placing.removed(places.of(claim))));
      zk.need(places.size > 0);
      return there;
    },

    async revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
      await zk.reach();
      return Promise.all(targets.map(revoked));
    },

    async list(prefix: string, max: number, after?: string): Promise<readonly ClaimView[]> {
      await zk.reach();
      return listed({ zk, root, family, lines, wall: () => clock.wall() }, prefix, max, after);
    },

    examine: () => examined(zk, root, options.sessionMs ?? DEFAULT_SESSION_MS),

    async close() {
      notify = () => undefined;
      const left = places.all();
      if (!left.some(({ isHeld }) => isHeld)) return zk.close();
      // a relay's clients have not let go of what they hold: the session outlives us, and their own clocks end it first
      const waiting = zk.isConnected ? left.filter(({ isHeld }) => !isHeld) : [];
      await Promise.allSettled(waiting.map((place) => placing.removed(place)));
      await zk.leave();
    },
  };

  async function namesOf(folders: readonly string[]): Promise<Map<string, readonly string[]>> {
    const read = await Promise.all(folders.map((folder) => childrenOf(zk, folder)));
    return new Map(folders.map((folder, at) => [folder, read[at] as readonly string[]]));
  }

  async function revoked({ key, token, now }: RevokeTarget): Promise<boolean> {
    const folder = folderOf(key, root);
    const { line } = lineOf(await childrenOf(zk, folder), family);
    const there = await Promise.all(
      line.slice(0, admittedCount(line)).map(async ({ name }) => {
        const path = `${folder}/${name}`;
        try {
          const { data, stat } = await zk.get(path);
          if (!lines.hasToken(stat.czxid, readData(data)?.tokens ?? 1, token)) return false;
          if (!now && REVOKE.equals(data)) return false; // somebody was first
          // its holder's watch tells of the change, and so why the node is gone
          await zk.multi([{ do: "set", path, data: REVOKE }, ...(now ? [{ do: "delete" as const, path }] : [])]);
          return true;
        } catch (error) {
          if (!isRefusal(error, "NO_NODE")) throw error;
          return false;
        }
      }),
    );
    return there.includes(true);
  }
}

function isInLine(place: NodePlace): boolean {
  return place.at === "there" && !place.isHeld && !place.revoked;
}

/** Options may come from JavaScript. */
function checkedChoices(family: unknown, fair: unknown): void {
  if (family !== "mutex" && family !== "readWrite")
    throw new TypeError(`family must be "mutex" or "readWrite", not ${shown(family)}`);
  if (typeof fair !== "boolean") throw new TypeError(`fair must be true or false, not ${shown(fair)}`);
}

function checkedKeyPath({ holds: [{ key }] }: Claim): void {
  if (!key.startsWith("/")) return;
  try {
    if (key === "/") throw new TypeError('key must name a node below the root, not "/"');
    checkedPath(key, "key");
  } catch (error) {
    throw new FatalDriverError(`zookeeper: ${(error as Error).message}`, { keys: [key], cause: error });
  }
}

/** Do the servers know us by our certificate? Those before 3.7 do not tell. */
async function isCertified(zk: ZooKeeper): Promise<boolean> {
  try {
    return (await zk.whoAmI()).some(({ scheme }) => scheme === "x509");
  } catch (error) {
    if (!isRefusal(error, "UNIMPLEMENTED")) throw error;
    return false;
  }
}

async function opened(
  zk: ZooKeeper,
  events: SessionEvents,
  withinMs: number,
  prepare: () => Promise<void>,
): Promise<void> {
  try {
    await zk.open(events, withinMs);
    await prepare();
  } catch (error) {
    await zk.close();
    const refused = isRefusal(error, "NO_AUTH") || error instanceof AuthFailedError;
    throw refused ? new FatalDriverError((error as Error).message, { cause: error }) : error;
  }
}
