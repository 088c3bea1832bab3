/** Faults of the stores of documents: NATS, DynamoDB and S3. */

import type { Mutant } from "./mutants.ts";

const nats = { file: "src/drivers/nats/store.ts", tests: "test/integration/nats/store.test.ts" };
const dynamodb = { file: "src/drivers/dynamodb/store.ts", tests: "test/integration/dynamodb/store.test.ts" };
const s3 = { file: "src/drivers/s3/store.ts", tests: "test/integration/s3/store.test.ts" };
const aws = { file: "src/drivers/aws/client.ts", tests: dynamodb.tests };
const natsBucket = { file: "src/drivers/nats/bucket.ts", tests: nats.tests };
const natsConnection = { file: "src/drivers/nats/connection.ts", tests: nats.tests };
const natsCalls = { file: "src/drivers/nats/bucket-calls.ts", tests: nats.tests };

export const DOCUMENT_STORE_MUTANTS: readonly Mutant[] = [
