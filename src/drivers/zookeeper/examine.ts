/** What `holdfast doctor` is told of the servers. */

import type { Finding } from "../../spi/driver.ts";
import type { Acl } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

/** A session shorter than this ends with a pause of a garbage collector. */
const SHORT_SESSION_MS = 2_000;
const WRITE_CREATE_DELETE = 2 | 4 | 8;

/** An older one is refused when the client connects, and so by doctor before it looks (client/connection.ts). */
const VERSION: Finding = { level: "good", what: "version", says: "3.6 or newer, as locks need it" };

/** Reads only. */
export async function examined(zk: ZooKeeper, root: string, askedMs: number): Promise<readonly Finding[]> {
  return [VERSION, await mode(zk), session(zk, askedMs), await trip(zk, root), await rights(zk, root)];
}

async function mode(zk: ZooKeeper): Promise<Finding> {
  let members: readonly string[];
  try {
    members = await zk.members();
  } catch (error) {
    return { level: "unknown", what: "mode", says: `the servers do not tell: ${(error as Error).message}` };
  }
  const voting = members.filter((line) => !line.includes(":observer")).length;
  if (voting > 2) return { level: "good", what: "mode", says: `an ensemble of ${voting} voting servers` };
  return {
    level: "doubtful",
    what: "mode",
    says: voting === 0 ? "one server alone" : `an ensemble of ${voting} voting servers, which outlives none of them`,
    advice:
      "nothing is granted while it is down; sessions outlive a restart that is short enough. Three servers outlive one",
  };
}

function session(zk: ZooKeeper, askedMs: number): Finding {
  const { sessionMs } = zk;
  const what = "session";
  if (sessionMs !== askedMs) {
    return {
      level: "doubtful",
      what,
      says: `${sessionMs} ms, although ${askedMs} ms were asked for: the servers have a bound there`,
      advice: "minSessionTimeout and maxSessionTimeout of the servers, by default 2 and 20 ticks",
    };
  }
  if (sessionMs >= SHORT_SESSION_MS) return { level: "good", what, says: `${sessionMs} ms, as asked for` };
  return {
    level: "doubtful",
    what,
    says: `${sessionMs} ms: a pause of less ends all locks of a client`,
    advice: "sessionMs, in the url or the driver's options",
  };
}

async function trip(zk: ZooKeeper, root: string): Promise<Finding> {
  const from = performance.now();
  await zk.exists(root);
  return {
    level: "good",
    what: "trip",
    says: `${(performance.now() - from).toFixed(2)} ms to the server we are on and back`,
  };
}

async function rights(zk: ZooKeeper, root: string): Promise<Finding> {
  const what = "rights";
  let acl: readonly Acl[];
  try {
    acl = await zk.getAcl(root);
  } catch (error) {
    return { level: "unknown", what, says: `the ACL of ${root} is not for us to read: ${(error as Error).message}` };
  }
  const says = `${root}: ${acl.map(({ scheme, id, perms }) => `${scheme}:${id}:${letters(perms)}`).join(", ")}`;
  const open = acl.some(({ scheme, perms }) => scheme === "world" && (perms & WRITE_CREATE_DELETE) !== 0);
  if (!open) return { level: "good", what, says: withoutDigests(says) };
  return {
    level: "doubtful",
    what,
    says: withoutDigests(says),
    advice: "whoever reaches the servers may take and delete locks: give the driver auth or sasl on a path of its own",
  };
}

/** As ZooKeeper's own tools write them. */
function letters(perms: number): string {
  return ["r", "w", "c", "d", "a"].filter((_, bit) => perms & (1 << bit)).join("");
}

/** digest:user:hash tells of the password what nobody needs to see. */
function withoutDigests(text: string): string {
  return text.replace(/(digest:[^:,]*):[A-Za-z0-9+/=]{20,}/g, "$1:...");
}
