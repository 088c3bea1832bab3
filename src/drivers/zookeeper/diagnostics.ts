/** The checks of `holdfast doctor` on the servers. */

import type { Check } from "../../spi/driver.ts";
import { checkReadable, checkTrip, checkVoters } from "../cluster-checks.ts";
import type { ZooKeeper } from "./client/zookeeper.ts";

/** A shorter session can end during a garbage collector's pause. */
const MIN_SAFE_SESSION_MS = 2_000;
const WRITE_CREATE_DELETE = 2 | 4 | 8;

/** Always ok: the client refuses an older server when it connects (client/connection.ts), before any check runs. */
const VERSION_CHECK: Check = { status: "ok", name: "version", message: "3.6 or newer, as required" };

/** Runs all checks; changes nothing. */
export async function diagnose(zk: ZooKeeper, root: string, requestedMs: number): Promise<readonly Check[]> {
  return [
    VERSION_CHECK,
    await checkReadable("mode", "the configuration cannot be read", () => checkMode(zk)),
    checkSession(zk, requestedMs),
    await checkTrip("a round trip to the connected server", () => zk.exists(root)),
    await checkReadable("rights", `the ACL of ${root} cannot be read`, () => checkPermissions(zk, root)),
  ];
}

async function checkMode(zk: ZooKeeper): Promise<Check> {
  // a single server lists no members
  const voters = (await zk.members()).filter((line) => !line.includes(":observer")).length;
  return checkVoters(voters, {
    name: "mode",
    one: "server",
    all: "an ensemble",
    survival: "sessions survive a short restart",
  });
}

function checkSession(zk: ZooKeeper, requestedMs: number): Check {
  const { sessionMs } = zk;
  const name = "session";
  if (sessionMs !== requestedMs) {
    return {
      status: "warn",
      name,
      message: `${sessionMs} ms, although ${requestedMs} ms were requested: the servers limit it`,
      hint: "change minSessionTimeout and maxSessionTimeout of the servers (by default 2 and 20 ticks), or request a session within them",
    };
  }
  if (sessionMs >= MIN_SAFE_SESSION_MS) return { status: "ok", name, message: `${sessionMs} ms, as requested` };
  return {
    status: "warn",
    name,
    message: `${sessionMs} ms: a garbage collector's pause can end all locks of a client`,
    hint: "set a longer sessionMs in the url or the driver's options",
  };
}

async function checkPermissions(zk: ZooKeeper, root: string): Promise<Check> {
  const name = "rights";
  const acl = await zk.getAcl(root);
  const message = withoutDigests(
    `${root}: ${acl.map(({ scheme, id, perms }) => `${scheme}:${id}:${formatPermissions(perms)}`).join(", ")}`,
  );
  const isOpen = acl.some(({ scheme, perms }) => scheme === "world" && (perms & WRITE_CREATE_DELETE) !== 0);
  if (!isOpen) return { status: "ok", name, message };
  return {
    status: "warn",
    name,
    message,
    hint: "any client that reaches the servers can create and delete locks: give the driver auth or sasl, and a path of its own",
  };
}

/** Formats permissions as ZooKeeper's own tools do. */
function formatPermissions(perms: number): string {
  return ["r", "w", "c", "d", "a"].filter((_, bit) => perms & (1 << bit)).join("");
}

/** Removes password hashes (digest:user:hash), which must not be shown. */
function withoutDigests(text: string): string {
  return text.replace(/(digest:[^:,]*):[A-Za-z0-9+/=]{20,}/g, "$1:...");
}
