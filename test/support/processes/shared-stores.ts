/** The stores that processes can share, as the tests of elections and deploys start them. */

import { vi } from "vitest";
import { inspectDocuments } from "../stores/document-inspector.ts";
import type { StoreKind } from "../stores/document-servers.ts";
import { startDocumentServer } from "../stores/document-servers.ts";
import { AWS_ENVIRONMENT } from "../stores/document-stores.ts";
import { startEtcd } from "../stores/etcd.ts";
import { startMariaDb } from "../stores/mariadb.ts";
import { startPostgres } from "../stores/postgres.ts";
import { startRedis } from "../stores/redis.ts";
import type { DatabaseServer } from "../stores/sql-database.ts";
import { startZooKeeper } from "../stores/zookeeper.ts";
import type { ProcessHarness } from "./process-harness.ts";

interface SharedStore {
  readonly url: string;
  /** What is wrong in its own state. */
  findViolations?(): Promise<readonly string[]>;
  stop(): Promise<void>;
}

type StartStore = (harness: ProcessHarness) => Promise<SharedStore>;

async function useDatabase(server: DatabaseServer, toUrl: (url: string) => string): Promise<SharedStore> {
  const { url } = await server.freshDatabase();
  return { url: toUrl(url), stop: () => server.dispose() };
}

async function useDocuments(kind: StoreKind): Promise<SharedStore> {
  for (const [name, value] of Object.entries(AWS_ENVIRONMENT)) vi.stubEnv(name, value);
  const server = await startDocumentServer(kind);
  const address = await server.create();
  const inspector = await inspectDocuments(address);
  return {
    url: JSON.stringify(address),
    findViolations: () => inspector.findViolations(),
    async stop() {
      await inspector.close();
      await server.dispose();
    },
  };
}

const advisory = (url: string): string => `${url.replace("://", "+advisory://")}?sessionMs=2000`;

/** By their names in the titles of tests. */
export const SHARED_STORES: Readonly<Record<string, StartStore>> = {
  "the server": async (harness) => {
    const { url } = await harness.serve(["--listen", "holdfast://127.0.0.1:0"]);
    return { url, stop: async () => undefined };
  },
  Redis: async () => startRedis(),
  "a quorum of Redis servers": async () => {
    const servers = [await startRedis(), await startRedis(), await startRedis()];
    return {
      url: `quorum:${servers.map(({ url }) => url).join(",")}`,
      stop: async () => void (await Promise.all(servers.map((server) => server.stop()))),
    };
  },
  ZooKeeper: async () => {
    const server = await startZooKeeper();
    const { host, port } = server.address;
    return { url: `zookeeper://${host}:${port}?sessionMs=1000`, stop: () => server[Symbol.asyncDispose]() };
  },
  etcd: async () => {
    const server = await startEtcd();
    const { host, port } = server.address;
    return { url: `etcd://${host}:${port}`, stop: () => server[Symbol.asyncDispose]() };
  },
  PostgreSQL: async () => useDatabase(await startPostgres(), (url) => url),
  MariaDB: async () => useDatabase(await startMariaDb(), (url) => url),
  SQLite: async (harness) => ({ url: `sqlite:${harness.path("locks.db")}`, stop: async () => undefined }),
  NATS: () => useDocuments("nats"),
  DynamoDB: () => useDocuments("dynamodb"),
  S3: () => useDocuments("s3"),
  "advisory locks of PostgreSQL": async () => useDatabase(await startPostgres(), advisory),
  "advisory locks of MariaDB": async () => useDatabase(await startMariaDb(), advisory),
};
