/** Locks in a bucket of S3, by the document driver. */

import type { Driver } from "../../spi/driver.ts";
import type { OptionRules } from "../../util/validate.ts";
import { stringRule, validateOptions } from "../../util/validate.ts";
import { AWS_RULES } from "../aws/client.ts";
import { createDocumentDriver } from "../document/driver.ts";
import type { DocumentDriverOptions } from "../document/options.ts";
import { DOCUMENT_OPTION_RULES } from "../document/options.ts";
import type { S3StoreOptions } from "./store.ts";
import { s3Store } from "./store.ts";

export type { AwsClientLike } from "../aws/client.ts";

/** Where the bucket is, and how locks are kept in it. */
export interface S3DriverOptions extends S3StoreOptions, DocumentDriverOptions {}

const OPTION_RULES: OptionRules<S3DriverOptions> = {
  ...DOCUMENT_OPTION_RULES,
  ...AWS_RULES,
  bucket: (value) => (typeof value === "string" && /^[-\w.:/]+$/.test(value) ? null : "the name of a bucket"),
  prefix: stringRule,
};

/**
 * Locks in a bucket of S3, or of a store that speaks its protocol and has conditional writes. Needs the package
 * @aws-sdk/client-s3.
 * @throws TypeError naming the option that is wrong
 */
export function s3(options: S3DriverOptions): Driver {
  validateOptions("s3", options, OPTION_RULES, { required: ["bucket"], secret: ["endpoint"] });
  return createDocumentDriver(s3Store(options), options);
}
