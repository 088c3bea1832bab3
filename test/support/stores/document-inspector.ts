// The raw state of a store with a conditional write: its documents as they are there, read by the client of its maker, not by the
// driver, whose decoder is all that is used of it.

import { DynamoDBClient, GetItemCommand } from "@aws-sdk/client-dynamodb";
import { GetObjectCommand, NoSuchKey, S3Client } from "@aws-sdk/client-s3";
import { Kvm } from "@nats-io/kv";
import { connect } from "@nats-io/transport-node";
import { decodeDocument } from "../../../src/drivers/document/format.ts";
import type { StoreAddress } from "./document-stores.ts";
import { AWS_SETTINGS } from "./document-stores.ts";
import { findDocumentViolations } from "./memory-documents.ts";
import type { StoredEntry } from "./store-inspector.ts";
import { findViolations } from "./store-inspector.ts";

export interface DocumentInspector {
  /** Everything that is wrong with the documents, in words; empty if nothing is. */
  findViolations(): Promise<readonly string[]>;
  close(): Promise<void>;
}

type RawDocument = readonly [name: string, bytes: Uint8Array];

export async function inspectDocuments(address: StoreAddress): Promise<DocumentInspector> {
  const { read, close } = await openRaw(address);
  /** Those of locks, and the layout; none while the store is new. */
  let names: readonly string[] = [];

  async function listNames(): Promise<readonly string[]> {
    const layout = await read("layout");
    if (layout === null) return [];
    const { documents } = decodeDocument(layout, "layout");
    return ["layout", ...Array.from({ length: documents }, (_, index) => `locks-${index}`)];
  }

  async function readDocuments(): Promise<readonly RawDocument[]> {
    if (names.length === 0) names = await listNames();
    const found = await Promise.all(names.map(async (name) => [name, await read(name)] as const));
    return found.flatMap(([name, bytes]) => (bytes === null ? [] : [[name, bytes] as const]));
  }

  return {
    async findViolations() {
      const documents = await readDocuments();
      const entries = documents.flatMap(listEntries);
      return [
        ...findViolations({ entries, withoutExpiry: [], orphans: [] }),
        ...documents.flatMap(([name, bytes]) => findDocumentViolations(name, bytes)),
      ];
    },
    close,
  };
}

function listEntries([name, bytes]: RawDocument): StoredEntry[] {
  return decodeDocument(bytes, name).queues.flatMap(([key, entries]) =>
    entries.map((entry) => {
      const [claim, , , permits, limit] = entry;
      return { claim, key, permits, limit, state: entry.at(-1) === 0 ? ("waiting" as const) : ("held" as const) };
    }),
  );
}

interface RawStore {
  read(name: string): Promise<Uint8Array | null>;
  close(): Promise<void>;
}

async function openRaw(address: StoreAddress): Promise<RawStore> {
  if (address.kind === "nats") return openNats(address);
  return address.kind === "dynamodb" ? openDynamoDb(address) : openS3(address);
}

async function openNats({ servers, bucket }: StoreAddress & { readonly kind: "nats" }): Promise<RawStore> {
  const connection = await connect({ servers: [...servers] });
  const kv = await new Kvm(connection).open(bucket, { allow_direct: false });
  return {
    read: async (name) => (await kv.get(name))?.value ?? null,
    close: () => connection.close(),
  };
}

function openDynamoDb({ endpoint, table }: StoreAddress & { readonly kind: "dynamodb" }): RawStore {
  const client = new DynamoDBClient({ endpoint, ...AWS_SETTINGS });
  return {
    async read(name) {
      const input = { TableName: table, Key: { name: { S: name } }, ConsistentRead: true };
      return (await client.send(new GetItemCommand(input))).Item?.document?.B ?? null;
    },
    close: async () => client.destroy(),
  };
}

function openS3({ endpoint, bucket }: StoreAddress & { readonly kind: "s3" }): RawStore {
  const client = new S3Client({ endpoint, ...AWS_SETTINGS, forcePathStyle: true });
  return {
    async read(name) {
      try {
        const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: `holdfast/${name}` }));
        return (await Body?.transformToByteArray()) ?? null;
      } catch (error) {
        if (error instanceof NoSuchKey) return null;
        throw error;
      }
    },
    close: async () => client.destroy(),
  };
}
