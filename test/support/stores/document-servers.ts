/** The programs on which the stores with a conditional write are tested. */

import type { DatabaseProcess } from "../../../src/torture/processes/database-process.ts";
import type { StoreAddress } from "./document-stores.ts";
import { createBucket } from "./document-stores.ts";
import { startDynalite } from "./dynalite.ts";
import { startNats } from "./nats.ts";
import { startS3 } from "./s3-server.ts";

export type StoreKind = StoreAddress["kind"];

export interface DocumentServer extends Pick<DatabaseProcess, "crash" | "signal"> {
  /** A new bucket or table. Default: of a name of its own. */
  create(name?: string): Promise<StoreAddress>;
  /** Ends it, and deletes its data. */
  dispose(): Promise<void>;
}

const STARTERS: Readonly<
  Record<StoreKind, () => Promise<Omit<DocumentServer, "create"> & { addressOf(name: string): StoreAddress }>>
> = {
  async nats() {
    const server = await startNats();
    return { ...server, addressOf: (bucket) => ({ kind: "nats", servers: [server.address], bucket }) };
  },
  async dynamodb() {
    const server = await startDynalite();
    return { ...server, addressOf: (table) => ({ kind: "dynamodb", endpoint: server.endpoint, table }) };
  },
  async s3() {
    const server = await startS3();
    return { ...server, addressOf: (bucket) => ({ kind: "s3", endpoint: server.endpoint, bucket }) };
  },
};

export async function startDocumentServer(kind: StoreKind): Promise<DocumentServer> {
  const { addressOf, ...server } = await STARTERS[kind]();
  let count = 0;
  return {
    ...server,
    async create(name = `locks-${++count}`) {
      const address = addressOf(name);
      await createBucket(address);
      return address;
    },
  };
}

/** Of `connect()`. The region and the credentials are those of AWS_ENVIRONMENT. */
export function urlOf(address: StoreAddress): string {
  if (address.kind === "nats") return `nats://${address.servers.join(",")}?bucket=${address.bucket}`;
  if (address.kind === "dynamodb") return `dynamodb:${address.table}?endpoint=${address.endpoint}`;
  return `s3://${address.bucket}?endpoint=${address.endpoint}`;
}
