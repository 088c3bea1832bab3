/**
 * Documents in a table of DynamoDB: an item each, with the attributes `document` and `version`, a random text. Reads are strongly
 * consistent; a write has a condition on the version.
 */

import type { AwsOptions } from "../aws/client.ts";
import { callAws, clientSettings, conflictUnlessRepeated, isAwsError } from "../aws/client.ts";
import { checkConditionalWrites } from "../conditional-write-check.ts";
import type { DocumentStore } from "../document/store.ts";
import type { OpenTable, TableDescription } from "./table.ts";
import { checkTimeToLive, importSdk, readKeyName } from "./table.ts";

export interface DynamoDbStoreOptions extends AwsOptions {
  /** The name of the table. Its key must be one text attribute, of any name, without a sort key. */
  readonly table: string;
}

export function dynamoDbStore(options: DynamoDbStoreOptions): DocumentStore {
  const { table: TableName, client: givenClient } = options;
  const subject = `the table "${TableName}" of DynamoDB`;
  let opened: OpenTable | null = null;

  async function open(signal: AbortSignal): Promise<void> {
    const sdk = await importSdk();
    const client = givenClient ?? opened?.client ?? new sdk.DynamoDBClient(clientSettings(options));
    // known before the first answer, so that close() ends the client
    opened = { sdk, client, key: "" };
    const command = new sdk.DescribeTableCommand({ TableName });
    const { Table } = await callAws<{ readonly Table: TableDescription }>(client, command, { signal, subject });
    opened = { sdk, client, key: readKeyName(Table, subject) };
  }

  function use(): OpenTable {
    if (opened === null) throw new Error(`${subject} is not open`);
    return opened;
  }

  const store: DocumentStore = {
    name: "dynamodb",
    open,

    async read(name, signal) {
      const { sdk, client, key } = use();
      const input = { TableName, Key: { [key]: { S: name } }, ConsistentRead: true };
      const { Item } = await callAws<{ readonly Item?: DocumentItem }>(client, new sdk.GetItemCommand(input), {
        signal,
        subject,
      });
      if (Item === undefined) return null;
      // without these attributes it is another program's, and so no document either
      return { bytes: Item.document?.B ?? new Uint8Array(), version: Item.version?.S ?? "" };
    },

    async write(name, bytes, version, signal) {
      const { sdk, client, key } = use();
      const newVersion = crypto.randomUUID();
      const input = {
        TableName,
        Item: { [key]: { S: name }, version: { S: newVersion }, document: { B: bytes } },
        ConditionExpression: version === null ? "attribute_not_exists(#key)" : "#version = :version",
        ExpressionAttributeNames: version === null ? { "#key": key } : { "#version": "version" },
        ...(version !== null && { ExpressionAttributeValues: { ":version": { S: version } } }),
      };
      try {
        await callAws(client, new sdk.PutItemCommand(input), { signal, subject });
        return { version: newVersion };
      } catch (error) {
        if (isAwsError(error, "ConditionalCheckFailedException")) return conflictUnlessRepeated(error);
        throw error;
      }
    },

    diagnose: async () => [await checkTimeToLive(use(), TableName), await checkConditionalWrites(store)],

    async close() {
      if (givenClient === undefined) opened?.client.destroy?.();
      opened = null;
    },
  };
  return store;
}

interface DocumentItem {
  readonly document?: { readonly B?: Uint8Array };
  readonly version?: { readonly S?: string };
}
