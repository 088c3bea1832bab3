/** The stores with a conditional write, for tests and for the processes that they start. */

import { CreateTableCommand, DynamoDBClient } from "@aws-sdk/client-dynamodb";
import { CreateBucketCommand, S3Client } from "@aws-sdk/client-s3";
import { Kvm } from "@nats-io/kv";
import { connect } from "@nats-io/transport-node";
import type { DocumentStore } from "../../../src/drivers/document/store.ts";
import { dynamoDbStore } from "../../../src/drivers/dynamodb/store.ts";
import { natsStore } from "../../../src/drivers/nats/store.ts";
import { s3Store } from "../../../src/drivers/s3/store.ts";

/** A store of its own; as JSON also for another process. */
export type StoreAddress =
  | { readonly kind: "nats"; readonly servers: readonly string[]; readonly bucket: string }
  | { readonly kind: "dynamodb"; readonly endpoint: string; readonly table: string }
  | { readonly kind: "s3"; readonly endpoint: string; readonly bucket: string };

/** One of the services of tests checks the credentials, and the SDK finds none on a machine that has none. */
export const AWS_ENVIRONMENT = {
  AWS_ACCESS_KEY_ID: "test-access-key",
  AWS_SECRET_ACCESS_KEY: "test-secret-access-key",
  AWS_REGION: "eu-west-1",
  // a passing remark of the SDK about the next year
  AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: "true",
} as const;

/** The same, for a client of a test. */
export const AWS_SETTINGS = {
  region: AWS_ENVIRONMENT.AWS_REGION,
  credentials: {
    accessKeyId: AWS_ENVIRONMENT.AWS_ACCESS_KEY_ID,
    secretAccessKey: AWS_ENVIRONMENT.AWS_SECRET_ACCESS_KEY,
  },
} as const;

export function createStore(address: StoreAddress): DocumentStore {
  if (address.kind === "nats") return natsStore({ servers: address.servers, bucket: address.bucket });
  if (address.kind === "dynamodb") return dynamoDbStore({ endpoint: address.endpoint, table: address.table });
  return s3Store({ endpoint: address.endpoint, bucket: address.bucket });
}

/** Creates the bucket or table of that address. Its connection is closed: a test must leave none. */
export async function createBucket(address: StoreAddress): Promise<void> {
  if (address.kind === "nats") {
    const connection = await connect({ servers: [...address.servers] });
    await new Kvm(connection).create(address.bucket);
    return connection.close();
  }
  const settings = { endpoint: address.endpoint, ...AWS_SETTINGS };
  if (address.kind === "dynamodb") {
    const client = new DynamoDBClient(settings);
    await client.send(
      new CreateTableCommand({
        TableName: address.table,
        BillingMode: "PAY_PER_REQUEST",
        AttributeDefinitions: [{ AttributeName: "name", AttributeType: "S" }],
        KeySchema: [{ AttributeName: "name", KeyType: "HASH" }],
      }),
    );
    return client.destroy();
  }
  const client = new S3Client({ ...settings, forcePathStyle: true });
  const location = { LocationConstraint: AWS_SETTINGS.region } as const;
  await client.send(new CreateBucketCommand({ Bucket: address.bucket, CreateBucketConfiguration: location }));
  client.destroy();
}
