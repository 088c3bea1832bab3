/** Locks in a table of DynamoDB, by the document driver. */

import type { Driver } from "../../spi/driver.ts";
import type { OptionRules } from "../../util/validate.ts";
import { validateOptions } from "../../util/validate.ts";
import { AWS_RULES } from "../aws/client.ts";
import { createDocumentDriver } from "../document/driver.ts";
import type { DocumentDriverOptions } from "../document/options.ts";
import { DOCUMENT_OPTION_RULES } from "../document/options.ts";
import type { DynamoDbStoreOptions } from "./store.ts";
import { dynamoDbStore } from "./store.ts";

export type { AwsClientLike } from "../aws/client.ts";

/** Where the table is, and how locks are kept in it. */
export interface DynamoDbDriverOptions extends DynamoDbStoreOptions, DocumentDriverOptions {}

const OPTION_RULES: OptionRules<DynamoDbDriverOptions> = {
  ...DOCUMENT_OPTION_RULES,
  ...AWS_RULES,
  table: (value) =>
    typeof value === "string" && /^[-\w.:/]{1,1024}$/.test(value) ? null : "the name of a table, or its ARN",
};

/**
 * Locks in a table of DynamoDB. Needs the package @aws-sdk/client-dynamodb.
 * @throws TypeError naming the option that is wrong
 */
export function dynamodb(options: DynamoDbDriverOptions): Driver {
  validateOptions("dynamodb", options, OPTION_RULES, { required: ["table"], secret: ["endpoint"] });
  return createDocumentDriver(dynamoDbStore(options), options);
}
