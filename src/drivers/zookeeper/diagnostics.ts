/** What `holdfast doctor` is told of the servers. */

import type { Check } from "../../spi/driver.ts";
import type { Acl } from "./client/records.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

/** A session shorter than this ends with a pause of a garbage collector. */
const MIN_SAFE_SESSION_MS = 2_000;
const WRITE_CREATE_DELETE = 2 | 4 | 8;

/** An older one is refused when the client connects, and so by doctor before it looks (client/connection.ts). */
const VERSION_CHECK: Check = { level: "good", what: "version", says: "3.6 or newer, as locks need it" };

/** Reads only. */
export async function diagnose(zk: ZooKeeper, root: string, requestedMs: number): Promise<readonly Check[]> {
  return [
    VERSION_CHECK,
    await checkMode(zk),
    checkSession(zk, requestedMs),
    await checkRoundTrip(zk, root),
    await checkPermissions(zk, root),
  ];
}

async function checkMode(zk: ZooKeeper): Promise<Check> {
  let members: readonly string[];
  try {
    members = await zk.members();
  } catch (error) {
    return { level: "unknown", what: "mode", says: `the servers do not tell: ${(error as Error).message}` };
  }
  const voterCount = members.filter((line) => !line.includes(":observer")).length;
  if (voterCount > 2) return { level: "good", what: "mode", says: `an ensemble of ${voterCount} voting servers` };
  return {
    level: "doubtful",
    what: "mode",
    says:
      voterCount === 0
        ? "one server alone"
        : `an ensemble of ${voterCount} voting servers, which outlives none of them`,
    advice:
      "nothing is granted while it is down; sessions outlive a restart that is short enough. Three servers outlive one",
  };
}

function checkSession(zk: ZooKeeper, requestedMs: number): Check {
  const { sessionMs } = zk;
  const what = "session";
  if (sessionMs !== requestedMs) {
    return {
      level: "doubtful",
      what,
      says: `${sessionMs} ms, although ${requestedMs} ms were asked for: the servers have a bound there`,
      advice: "minSessionTimeout and maxSessionTimeout of the servers, by default 2 and 20 ticks",
    };
  }
  if (sessionMs >= MIN_SAFE_SESSION_MS) return { level: "good", what, says: `${sessionMs} ms, as asked for` };
  return {
    level: "doubtful",
    what,
    says: `${sessionMs} ms: a pause of less ends all locks of a client`,
    advice: "sessionMs, in the url or the driver's options",
  };
}

async function checkRoundTrip(zk: ZooKeeper, root: string): Promise<Check> {
  const startedAt = performance.now();
  await zk.exists(root);
  return {
    level: "good",
    what: "trip",
    says: `${(performance.now() - startedAt).toFixed(2)} ms to the server we are on and back`,
  };
}

async function checkPermissions(zk: ZooKeeper, root: string): Promise<Check> {
  const what = "rights";
  let acl: readonly Acl[];
  try {
    acl = await zk.getAcl(root);
  } catch (error) {
    return { level: "unknown", what, says: `the ACL of ${root} is not for us to read: ${(error as Error).message}` };
  }
  const says = `${root}: ${acl.map(({ scheme, id, perms }) => `${scheme}:${id}:${formatPermissions(perms)}`).join(", ")}`;
  const isOpen = acl.some(({ scheme, perms }) => scheme === "world" && (perms & WRITE_CREATE_DELETE) !== 0);
  if (!isOpen) return { level: "good", what, says: withoutDigests(says) };
  return {
    level: "doubtful",
    what,
    says: withoutDigests(says),
    advice: "whoever reaches the servers may take and delete locks: give the driver auth or sasl on a path of its own",
  };
}

/** As ZooKeeper's own tools write them. */
function formatPermissions(perms: number): string {
  return ["r", "w", "c", "d", "a"].filter((_, bit) => perms & (1 << bit)).join("");
}

/** digest:user:hash tells of the password what nobody needs to see. */
function withoutDigests(text: string): string {
  return text.replace(/(digest:[^:,]*):[A-Za-z0-9+/=]{20,}/g, "$1:...");
}
