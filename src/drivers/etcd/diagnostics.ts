/** The checks of `holdfast doctor` on the servers. */

import { StoreRefusedError } from "../../errors.ts";
import type { Check } from "../../spi/driver.ts";
import { checkReadable, checkTrip, checkVoters } from "../cluster-checks.ts";
import type { EtcdClient } from "./client/client.ts";
import type { Leases } from "./leases.ts";

interface Status {
  readonly version: string;
  /** Absent: the member knows no leader. */
  readonly leader?: string;
}

/** @throws StoreRefusedError if the servers are too old */
export async function requireVersion(client: EtcdClient): Promise<void> {
  const { version } = await client.call<Partial<Status>>("/v3/maintenance/status", {});
  if (typeof version !== "string")
    throw new StoreRefusedError("etcd: the server does not say its version: is it etcd?");
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major < 3 || (major === 3 && minor < 4))
    throw new StoreRefusedError(`etcd: version ${version} is too old, 3.4 or newer is required`);
}

/** Runs all checks; changes nothing. */
export async function diagnose(client: EtcdClient, leases: Leases): Promise<readonly Check[]> {
  return [
    await checkVersion(client),
    await checkReadable("members", "they cannot be listed", () => checkMembers(client)),
    await checkReadable("alarms", "they cannot be read", () => checkAlarms(client)),
    await checkTrip("a read through the log", () => leases.readTerm()),
  ];
}

async function checkVersion(client: EtcdClient): Promise<Check> {
  const { version, leader } = await client.call<Status>("/v3/maintenance/status", {});
  const name = "version";
  if (leader !== undefined) return { status: "ok", name, message: `${version}; 3.4 or newer is required` };
  return {
    status: "fail",
    name,
    message: `${version}; the member knows no leader`,
    hint: "nothing is granted until a majority of the members is up",
  };
}

async function checkMembers(client: EtcdClient): Promise<Check> {
  const { members } = await client.call<{ members: readonly { isLearner?: boolean }[] }>("/v3/cluster/member/list", {});
  const voters = members.filter(({ isLearner }) => isLearner !== true).length;
  return checkVoters(voters, {
    name: "members",
    one: "member",
    all: "a cluster",
    survival: "leases survive a restart",
  });
}

async function checkAlarms(client: EtcdClient): Promise<Check> {
  const name = "alarms";
  const { alarms = [] } = await client.call<{ alarms?: readonly { alarm?: string }[] }>("/v3/maintenance/alarm", {});
  if (alarms.length === 0) return { status: "ok", name, message: "none" };
  return {
    status: "fail",
    name,
    message: [...new Set(alarms.map(({ alarm = "unknown" }) => alarm))].join(", "),
    hint: "with NOSPACE nothing is granted: compact, defragment, and disarm the alarm with etcdctl",
  };
}
