/** Faults of the stores of documents: NATS, DynamoDB and S3. */

import type { Mutant } from "./mutants.ts";

const natsTests = "test/integration/nats/store.test.ts";
const dynamodbTests = "test/integration/dynamodb/store.test.ts";
const s3Tests = "test/integration/s3/store.test.ts";
const nats = { file: "src/drivers/nats/store.ts", tests: natsTests };
const dynamodb = { file: "src/drivers/dynamodb/store.ts", tests: dynamodbTests };
const s3 = { file: "src/drivers/s3/store.ts", tests: s3Tests };
const s3Bucket = { file: "src/drivers/s3/bucket.ts", tests: s3Tests };
const aws = { file: "src/drivers/aws/client.ts", tests: dynamodbTests };

export const DOCUMENT_STORE_MUTANTS: readonly Mutant[] = [
  {
    ...nats,
    name: "in NATS, a document that is replaced in whichever version it has",
    find: "kv.update(name, bytes, Number(version));",
    replace: "kv.update(name, bytes, (await kv.get(name))?.revision ?? 0);",
  },
  {
    ...nats,
    name: "in NATS, a document that is created over another",
    find: "version === null ? kv.create(name, bytes)",
    replace: "version === null ? kv.update(name, bytes, (await kv.get(name))?.revision ?? 0)",
  },
  {
    ...nats,
    name: "in NATS, a conflict that is an error",
    find: 'if (isConflict(error)) return "conflict";',
    replace: "",
  },
  {
    ...nats,
    name: "in NATS, an error that is a conflict",
    find: 'if (isConflict(error)) return "conflict";',
    replace: 'if (error !== undefined) return "conflict";',
  },
  {
    ...nats,
    name: "in NATS, a conflict that is a success",
    find: 'if (isConflict(error)) return "conflict";',
    replace: "if (isConflict(error)) return { version: String(version) };",
  },
  {
    ...nats,
    name: "in NATS, a deleted document that is read",
    find: 'entry?.operation === "PUT"',
    replace: "entry?.operation !== undefined",
  },
  {
    ...nats,
    name: "in NATS, an error that a retry cannot mend, and is repeated",
    find: "throw toStoreError(error, subject);",
    replace: "throw error;",
  },
  {
    ...nats,
    file: "src/drivers/nats/bucket.ts",
    name: "in NATS, a bucket that deletes keys",
    find: "if (max_age > 0) return",
    replace: "if (max_age > 1e18) return",
  },
  {
    ...nats,
    file: "src/drivers/nats/bucket-calls.ts",
    name: "in NATS, a connection that is kept although a call on it had no answer",
    find: "if (signal.aborted) this.#leave(session);",
    replace: "",
  },
  {
    ...nats,
    file: "src/drivers/nats/bucket-calls.ts",
    name: "in NATS, a break of the connection that watches are not told of",
    find: 'if (type === "reconnect") this.#watches.tellAll();',
    replace: "void type;",
  },
  {
    ...dynamodb,
    name: "in DynamoDB, a document that is created over another",
    find: '"attribute_not_exists(#key)"',
    replace: '"attribute_not_exists(#key) OR attribute_exists(#key)"',
  },
  {
    ...dynamodb,
    name: "in DynamoDB, a document that is replaced in whichever version it has",
    find: '"#version = :version"',
    replace: '"#version = :version OR #version <> :version"',
  },
  {
    ...dynamodb,
    name: "in DynamoDB, a conflict that is an error",
    find: 'if (isAwsError(error, "ConditionalCheckFailedException")) return conflictUnlessRepeated(error);',
    replace: "",
  },
  {
    ...dynamodb,
    name: "in DynamoDB, an error that is a conflict",
    find: 'if (isAwsError(error, "ConditionalCheckFailedException")) return',
    replace: "if (error !== undefined) return",
  },
  {
    ...dynamodb,
    name: "in DynamoDB, an item of another program that is overwritten",
    find: "if (Item === undefined) return null;",
    replace: "if (Item?.document === undefined) return null;",
  },
  {
    ...dynamodb,
    file: "src/drivers/dynamodb/table.ts",
    name: "in DynamoDB, a table with a key that locks cannot use",
    find: "if (hash !== undefined && isUsable) return",
    replace: "if (hash !== undefined && isUsable !== null) return",
  },
  {
    ...s3,
    name: "in S3, a document that is created over another",
    find: '{ IfNoneMatch: "*" }',
    replace: "{}",
  },
  {
    ...s3,
    name: "in S3, a document that is replaced in whichever version it has",
    find: "{ IfMatch: version }",
    replace: "{}",
  },
  {
    ...s3,
    name: "in S3, a conflict that is an error",
    find: "409, 412))",
    replace: "409))",
  },
  {
    ...s3,
    name: "in S3, another write under way that is an error",
    find: '"ConditionalRequestConflict", 409, 412',
    replace: "412",
  },
  {
    ...s3,
    name: "in S3, a replaced document that does not exist, which is an error",
    find: '"NoSuchKey", "ConditionalRequestConflict"',
    replace: '"ConditionalRequestConflict"',
  },
  {
    ...s3,
    name: "in S3, an error that is a conflict",
    find: 'if (isAwsError(error, "NoSuchKey", "ConditionalRequestConflict", 409, 412))',
    replace: "if (error !== undefined)",
  },
  {
    ...s3,
    name: "in S3, a store that ignores the conditions of writes",
    find: "await refuseIgnoredConditions(signal);",
    replace: "void refuseIgnoredConditions;",
  },
  {
    ...s3,
    name: "in S3, documents of all prefixes in one",
    find: "Key: prefix + name, Body: bytes",
    replace: "Key: DEFAULT_PREFIX + name, Body: bytes",
  },
  {
    ...s3Bucket,
    name: "in S3, a lifecycle rule that deletes locks",
    find: 'return Status === "Enabled" && ends && overlaps && !isTagged;',
    replace: 'return Status === "Enabled" && ends && overlaps && isTagged;',
  },
  {
    ...aws,
    name: "on AWS, a write that the client repeats by itself",
    find: "maxAttempts: 1,",
    replace: "maxAttempts: 3,",
  },
  {
    ...aws,
    name: "on AWS, a conflict of a write with its own repetition",
    find: "?? 1) === 1) return",
    replace: "?? 1) >= 1) return",
  },
  {
    ...aws,
    name: "on AWS, a refusal that is repeated",
    find: "if (!REFUSALS.includes(name) &&",
    replace: "if (name !== message &&",
  },
  {
    ...aws,
    tests: "test/unit/drivers/aws/client.test.ts",
    name: "on AWS, a reused connection with one listener more each time",
    find: "reuseSocket(socket, request);",
    replace: "",
  },
];
