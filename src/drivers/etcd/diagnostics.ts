/** The checks of `holdfast doctor` on the servers. */

import { StoreRefusedError } from "../../errors.ts";
import type { Check } from "../../spi/driver.ts";
import type { Gateway } from "./client/gateway.ts";
import { encodeText } from "./client/messages.ts";

interface Status {
  readonly version: string;
  /** Absent: the member knows no leader. */
  readonly leader?: string;
  readonly dbSizeInUse?: string;
}

/** @throws StoreRefusedError if the servers are too old */
export async function requireVersion(gateway: Gateway): Promise<void> {
  const { version } = await gateway.call<Partial<Status>>("/v3/maintenance/status", {});
  if (typeof version !== "string")
    throw new StoreRefusedError("etcd: the server does not say its version: is it etcd?");
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < 3 || (major === 3 && minor < 4))
    throw new StoreRefusedError(`etcd: version ${version} is too old, 3.4 or newer is required`);
}

/** Runs all checks; changes nothing. probeKey: one that the user may read. */
export async function diagnose(gateway: Gateway, probeKey: string): Promise<readonly Check[]> {
  return [
    await checkVersion(gateway),
    await checkMembers(gateway),
    await checkAlarms(gateway),
    await checkTrip(gateway, probeKey),
  ];
}

async function checkVersion(gateway: Gateway): Promise<Check> {
  const { version, leader } = await gateway.call<Status>("/v3/maintenance/status", {});
  const name = "version";
  if (leader === undefined)
    return {
      status: "fail",
      name,
      message: `${version}; the member knows no leader`,
      hint: "nothing is granted until a majority of the members is up",
    };
  return { status: "ok", name, message: `${version}; 3.4 or newer is required` };
}

async function checkMembers(gateway: Gateway): Promise<Check> {
  const name = "members";
  let voters: number;
  try {
    const { members } = await gateway.call<{ members: readonly { isLearner?: boolean }[] }>(
      "/v3/cluster/member/list",
      {},
    );
    voters = members.filter(({ isLearner }) => isLearner !== true).length;
  } catch (error) {
    return { status: "unknown", name, message: `they cannot be listed: ${(error as Error).message}` };
  }
  if (voters > 2) return { status: "ok", name, message: `a cluster of ${voters} voting members` };
  return {
    status: "warn",
    name,
    message: voters === 1 ? "a single member" : `a cluster of ${voters} voting members, which tolerates no failure`,
    hint: "nothing is granted during an outage; leases survive a restart. Three members tolerate the failure of one",
  };
}

async function checkAlarms(gateway: Gateway): Promise<Check> {
  const name = "alarms";
  try {
    const { alarms = [] } = await gateway.call<{ alarms?: readonly { alarm?: string }[] }>("/v3/maintenance/alarm", {});
    if (alarms.length === 0) return { status: "ok", name, message: "none" };
    return {
      status: "fail",
      name,
      message: [...new Set(alarms.map(({ alarm = "unknown" }) => alarm))].join(", "),
      hint: "with NOSPACE nothing is granted: compact, defragment, and disarm the alarm with etcdctl",
    };
  } catch (error) {
    return { status: "unknown", name, message: `they cannot be read: ${(error as Error).message}` };
  }
}

async function checkTrip(gateway: Gateway, probeKey: string): Promise<Check> {
  const startedAt = performance.now();
  await gateway.call("/v3/kv/range", { key: encodeText(probeKey), count_only: true });
  return {
    status: "ok",
    name: "trip",
    message: `${(performance.now() - startedAt).toFixed(2)} ms for a read through the log`,
  };
}
