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

import { systemClock } from "../../clock.ts";
import { admittedCount } from "../../core/line.ts";
import type { Answer, Claim, ClaimView, Driver, ListFilter, Notify, RevokeTarget, Traits } from "../../spi/driver.ts";
import { FatalDriverError } from "../../spi/driver.ts";
import { ConnectionLossError, isForGood, isRefusal, ZooKeeperError } from "./client/errors.ts";
import { checkedPath } from "./client/paths.ts";
import { childrenOf, makePath } from "./client/recipes.ts";
import { CREATOR_ALL, OPEN_TO_ALL } from "./client/records.ts";
import type { SessionEvents } from "./client/zookeeper.ts";
import { DEFAULT_SESSION_MS, ZooKeeper } from "./client/zookeeper.ts";
import { REVOKE, readData } from "./data.ts";
import { examined } from "./examine.ts";
import { fatalOf } from "./fatal.ts";
import { Folders } from "./folders.ts";
import { Lines } from "./lines.ts";
import { listed } from "./listing.ts";
import { folderOf, lineOf } from "./names.ts";
import type { ZooKeeperDriverOptions } from "./options.ts";
import { checkZooKeeperOptions } from "./options.ts";
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
export type { ZooKeeperDriverOptions } from "./options.ts";

/**
 * Locks on a ZooKeeper ensemble.
 * @throws TypeError naming the option that is wrong
 */
export function zookeeper(options: ZooKeeperDriverOptions): Driver {
  checkZooKeeperOptions(options);
  const { root = "/holdfast", clock = systemClock, tokenBase = 0n, connectTimeoutMs = 5_000 } = options;
  const { family = "mutex", fair = true } = options;
  const hasCredentials = options.sasl !== undefined || (options.auth ?? []).length > 0;
  let acl = options.acl ?? (hasCredentials ? CREATOR_ALL : OPEN_TO_ALL);
  const zk = new ZooKeeper(options);
  const places = new Places(root);
  let notify: Notify = () => undefined;
  const watching = new Watching(zk, places, (id) => notify(id));
  const folders = new Folders(zk, () => acl);
  const lines = new Lines({ zk, places, acl: () => acl, tokenBase, family, watching });
  const placing = new Placing({ zk, lines, places, folders, watching, fair, random: Math.random });

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
      let mayBeCertified = options.acl === undefined && options.tls !== undefined;
      await opened(zk, events, connectTimeoutMs, async () => {
        // asked once: a server that does not know the question ends the connection
        if (mayBeCertified && (await isCertified(zk))) acl = CREATOR_ALL;
        mayBeCertified = false;
        await zk.makeChroot(acl);
        await makePath(zk, root, acl);
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

    async renew(claims: readonly Claim[]): Promise<readonly (Answer | undefined)[]> {
      const mine = claims.map((claim) => places.find(claim));
      const standing = mine.some((place) => place !== null && place.at !== "gone");
      // told at once, so that holders know that their session is at stake
      if (standing && !zk.isConnected) throw new ConnectionLossError(false, "ZooKeeper: no server is connected");
      // One question proves the session for all that are held. Its leader answers it: a server that has lost its own goes on
      // answering reads and pings for a while, in which our session ends and our nodes go.
      const held = mine.filter((place) => place?.isHeld && place.at === "there") as NodePlace[];
      if (held.length > 0) await Promise.all([zk.sync("/"), watching.confirmOne(held)]);
      for (const place of mine) if (place?.isHeld && !place.isWatched && place.checking === null) watching.own(place);
      // what somebody did to our nodes before that was told before it was answered
      await Promise.all(mine.map((place) => place?.checking ?? Promise.resolve()));
      // what is read now tells of the nodes that are there by now, and of no later ones
      const nodes = new Map<NodePlace, string>();
      for (const place of mine) if (place !== null && isInLine(place)) nodes.set(place, place.name);
      const names = await namesOf([...new Set([...nodes.keys()].map(({ folder }) => folder))]);
      return Promise.all(
        mine.map(async (place): Promise<Answer | undefined> => {
          if (place === null) return { state: "none" };
          try {
            if (place.isLeaving) return await givenUp(place);
            if (place.isUnsure) return await placing.placed(place);
            if (place.isAside) return await placing.tried(place);
            if (place.at !== "there" || place.revoked) return place.none;
            if (place.isHeld) return lines.held(place);
            if (nodes.get(place) !== place.name) return await placing.placed(place);
            // what could not be read with the others is read, and refused, alone
            const read = names.get(place.folder);
            return read === undefined ? await placing.placed(place) : await placing.stood(place, read);
          } catch (error) {
            // the connection is the affair of all; what else there is, of this one
            if (!(error instanceof FatalDriverError || error instanceof ZooKeeperError)) throw error;
            if (error instanceof FatalDriverError || isForGood(error)) return givenUp(place);
            return undefined;
          }
        }),
      );
    },

    async release(claims: readonly Claim[]): Promise<readonly boolean[]> {
      const there = await Promise.all(claims.map((claim) => left(places.of(claim))));
      zk.need(places.size > 0);
      return there;
    },

    async revoke(targets: readonly RevokeTarget[]): Promise<readonly boolean[]> {
      await zk.reach();
      return Promise.all(
        targets.map((target) =>
          revoked(target).catch((error: unknown) => {
            throw fatalOf(error);
          }),
        ),
      );
    },

    async list(filter: ListFilter, max: number, after?: string, signal?: AbortSignal): Promise<readonly ClaimView[]> {
      // at once if it can be: whoever asks for a place that is about to go leaves it behind this
      if (!zk.isConnected) await zk.reach();
      return listed({ zk, root, family, lines, places, wall: () => clock.wall() }, { filter, max, after, signal });
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

  /** Out of line a claim is claimed anew, and that call says why it is refused. */
  async function givenUp(place: NodePlace): Promise<Answer> {
    await left(place);
    return { state: "none" };
  }

  /** Deletes its node and says whether it was there; one that we may not delete any more stays as long as our session. */
  async function left(place: NodePlace): Promise<boolean> {
    try {
      return await placing.removed(place);
    } catch (error) {
      if (!isForGood(error)) throw error;
      folders.forget(place.folder);
      return false;
    }
  }

  /** Without those that the servers refuse to read. */
  async function namesOf(folders: readonly string[]): Promise<Map<string, readonly string[]>> {
    const found = new Map<string, readonly string[]>();
    const read = async (folder: string): Promise<void> => {
      try {
        found.set(folder, await childrenOf(zk, folder));
      } catch (error) {
        if (!(error instanceof ZooKeeperError)) throw error;
      }
    };
    await Promise.all(folders.map(read));
    return found;
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
    await zk.open(events, withinMs, prepare);
  } catch (error) {
    await zk.close();
    throw fatalOf(error);
  }
}
