/** etcd: one server, or three that are one store. */

import { join } from "node:path";
import type { DatabaseProcess } from "../processes/database-process.ts";
import { createDatabaseProcess } from "../processes/database-process.ts";
import { freePorts } from "../processes/free-port.ts";
import { askHttp } from "./ask-http.ts";
import { versionOf } from "./programs.ts";
import type { StartedStore, StoreSetup } from "./started-store.ts";
import { injectInto, injectIntoServer } from "./store-process.ts";

export interface EtcdPace {
  readonly heartbeatMs: number;
  readonly electionMs: number;
}

export interface EtcdMember extends EtcdPace {
  readonly index: number;
  /** The url of this one for its clients. */
  readonly url: string;
  /** Those of all members for each other. */
  readonly peerUrls: readonly string[];
  readonly dataDirectory: string;
}

/** The arguments of a member. */
export function etcdArguments({
  index,
  url,
  peerUrls,
  dataDirectory,
  heartbeatMs,
  electionMs,
}: EtcdMember): readonly string[] {
  const peerUrl = peerUrls[index] as string;
  return [
    ...["--name", `m${index}`, "--data-dir", dataDirectory],
    ...["--listen-client-urls", url, "--advertise-client-urls", url],
    ...["--listen-peer-urls", peerUrl, "--initial-advertise-peer-urls", peerUrl],
    ...["--initial-cluster", peerUrls.map((otherUrl, otherIndex) => `m${otherIndex}=${otherUrl}`).join(",")],
    ...["--heartbeat-interval", String(heartbeatMs), "--election-timeout", String(electionMs)],
  ];
}

/** A leader that does not get the processor for this time is replaced; one alone only waits for itself. */
export const ALONE: EtcdPace = { heartbeatMs: 20, electionMs: 200 };
export const TOGETHER: EtcdPace = { heartbeatMs: 100, electionMs: 500 };

/** Under load a write to a majority of disks takes long: of such an election etcd grants no lease that is too short for that. */
const PATIENT: EtcdPace = { heartbeatMs: 100, electionMs: 1_000 };

export async function startEtcd({ directory }: StoreSetup): Promise<StartedStore> {
  const version = versionOf("etcd", ["--version"]);
  const [{ port, server }] = (await createMembers(directory, 1)) as [Member];
  await server.start();
  const name = `etcd ${version}`;
  return {
    ...{ name, url: `etcd://127.0.0.1:${port}`, faults: ["store-kill", "store-restart", "store-pause"] },
    inject: injectIntoServer(name, server),
    close: () => server.crash(),
  };
}

export async function startEtcdCluster({ directory }: StoreSetup): Promise<StartedStore> {
  const version = versionOf("etcd", ["--version"]);
  const members = await createMembers(directory, 3);
  await Promise.all(members.map(({ server }) => server.start()));
  const name = `etcd ${version} with three members`;
  const findLeader = async (): Promise<Member | null> => {
    for (const member of members) if (hasLine(await readMetrics(member.port), "etcd_server_is_leader 1")) return member;
    return null;
  };
  return {
    ...{ name, url: `etcd://${members.map(({ port }) => `127.0.0.1:${port}`).join(",")}` },
    faults: ["store-kill", "store-restart", "store-pause", "store-fail-over"],
    inject: injectInto({
      name,
      servers: members.map(({ server }) => server) as [DatabaseProcess, ...DatabaseProcess[]],
      findLeader: async () => (await findLeader())?.server ?? null,
      async isWhole() {
        for (const { port } of members) if (!(await hasLeader(port))) return false;
        return true;
      },
      async failOver(random) {
        const leader = await findLeader();
        const others = members.filter((member) => member !== leader) as [Member, ...Member[]];
        const id = /etcd_server_id\{server_id="([0-9a-f]+)"\}/.exec(await readMetrics(random.pick(others).port))?.[1];
        if (leader === null || id === undefined) return false;
        const target = { targetID: String(BigInt(`0x${id}`)) };
        return (await askHttp(leader.port, "/v3/maintenance/transfer-leadership", target)) !== "";
      },
    }),
    close: async () => void (await Promise.all(members.map(({ server }) => server.crash()))),
  };
}

interface Member {
  readonly port: number;
  readonly server: DatabaseProcess;
}

async function createMembers(directory: string, count: number): Promise<Member[]> {
  const ports = await freePorts(count);
  const peerUrls = (await freePorts(count)).map((port) => `http://127.0.0.1:${port}`);
  return ports.map((port, index) => ({
    port,
    server: createDatabaseProcess({
      name: "etcd",
      command: [
        "etcd",
        ...etcdArguments({
          ...{ index, url: `http://127.0.0.1:${port}`, peerUrls, dataDirectory: join(directory, `etcd${index}`) },
          ...(count === 1 ? ALONE : PATIENT),
        }),
      ],
      log: join(directory, `log${index}`),
      environment: {},
      stopSignal: "SIGTERM",
      faults: /panic:/g,
      isReady: () => hasLeader(port),
    }),
  }));
}

function readMetrics(port: number): Promise<string> {
  return askHttp(port, "/metrics");
}

async function hasLeader(port: number): Promise<boolean> {
  return hasLine(await readMetrics(port), "etcd_server_has_leader 1");
}

function hasLine(text: string, line: string): boolean {
  return text.includes(`\n${line}\n`);
}
