/** The table of a store on DynamoDB: the library that reaches it, its key, and whether it deletes items. */

import { StoreRefusedError } from "../../errors.ts";
import type { Check } from "../../spi/driver.ts";
import type { AwsClientLike } from "../aws/client.ts";
import { callAws } from "../aws/client.ts";
import { createMissingError, nullIfMissing } from "../missing-library.ts";

export interface OpenTable {
  readonly sdk: DynamoDbSdk;
  readonly client: AwsClientLike;
  /** The name of the attribute that is the key. */
  readonly key: string;
}

export interface TableDescription {
  readonly TableStatus?: string;
  readonly KeySchema?: readonly { readonly AttributeName: string; readonly KeyType: string }[];
  readonly AttributeDefinitions?: readonly { readonly AttributeName: string; readonly AttributeType: string }[];
}

/** @throws StoreRefusedError if the key is another one than a single text attribute; Error while the table is being created */
export function readKeyName(table: TableDescription, subject: string): string {
  const { TableStatus, KeySchema = [], AttributeDefinitions = [] } = table;
  if (TableStatus === "CREATING") throw new Error(`${subject} is being created`);
  const [hash, ...others] = KeySchema;
  const type = AttributeDefinitions.find(({ AttributeName }) => AttributeName === hash?.AttributeName)?.AttributeType;
  const isUsable = others.length === 0 && type === "S" && !["document", "version"].includes(hash?.AttributeName ?? "");
  if (hash !== undefined && isUsable) return hash.AttributeName;
  throw new StoreRefusedError(
    `${subject} has another key than locks need: one text attribute, such as "name", without a sort key`,
  );
}

/** An item of a lock has no number, and only a number can be the end of an item's life. */
export async function checkTimeToLive({ sdk, client }: OpenTable, TableName: string): Promise<Check> {
  const name = "ttl attribute";
  const command = new sdk.DescribeTimeToLiveCommand({ TableName });
  try {
    const answer = await callAws<TimeToLive>(client, command, { subject: "the time to live" });
    const { TimeToLiveStatus: status, AttributeName: attribute } = answer.TimeToLiveDescription ?? {};
    if (status !== "ENABLED" && status !== "ENABLING") return { status: "ok", name, message: "none" };
    return {
      status: "warn",
      name,
      message: `the table deletes items by their attribute "${attribute}", which those of locks do not have`,
      hint: "keep locks in a table of their own",
    };
  } catch (error) {
    return { status: "unknown", name, message: `it cannot be read: ${(error as Error).message}` };
  }
}

interface TimeToLive {
  readonly TimeToLiveDescription?: { readonly TimeToLiveStatus?: string; readonly AttributeName?: string };
}

type Command = new (input: object) => object;

/** The part of @aws-sdk/client-dynamodb that is used here. Its own types would make it a dependency of the published types. */
interface DynamoDbSdk {
  readonly DynamoDBClient: new (settings: object) => AwsClientLike;
  readonly DescribeTableCommand: Command;
  readonly DescribeTimeToLiveCommand: Command;
  readonly GetItemCommand: Command;
  readonly PutItemCommand: Command;
}

export async function importSdk(): Promise<DynamoDbSdk> {
  try {
    return (await import("@aws-sdk/client-dynamodb" as string)) as DynamoDbSdk;
  } catch (error) {
    nullIfMissing("@aws-sdk/client-dynamodb", error);
    throw createMissingError("locks in DynamoDB", ["@aws-sdk/client-dynamodb"]);
  }
}
