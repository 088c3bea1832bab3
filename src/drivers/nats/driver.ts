/** Locks in a bucket of NATS KV, by the document driver. */

import type { Driver } from "../../spi/driver.ts";
import type { OptionRules } from "../../util/validate.ts";
import { isObject, stringRule, validateOptions } from "../../util/validate.ts";
import { createDocumentDriver } from "../document/driver.ts";
import type { DocumentDriverOptions } from "../document/options.ts";
import { DOCUMENT_OPTION_RULES } from "../document/options.ts";
import type { NatsStoreOptions } from "./store.ts";
import { natsStore } from "./store.ts";

export type { NatsConnectionLike } from "./connection.ts";

/** Where the bucket is, and how locks are kept in it. */
export interface NatsDriverOptions extends NatsStoreOptions, DocumentDriverOptions {}

const SERVER = /^(?:\[[0-9a-f:]+\]|[^:[\]\s/@?#]+)(?::\d{1,5})?$/i;

const OPTION_RULES: OptionRules<NatsDriverOptions> = {
  ...DOCUMENT_OPTION_RULES,
  bucket: (value) => (typeof value === "string" && /^[-\w]+$/.test(value) ? null : 'letters, digits, "-" and "_"'),
  connection: (value) =>
    isObject(value) && typeof value.isClosed === "function" ? null : "a connection of @nats-io/transport-node",
  servers: (value) => {
    const isList = Array.isArray(value) && value.length > 0;
    return isList && value.every((one) => typeof one === "string" && SERVER.test(one)) ? null : 'a list of "host:4222"';
  },
  user: stringRule,
  password: stringRule,
  token: stringRule,
};

/**
 * Locks in a bucket of NATS KV. Needs the packages @nats-io/kv and @nats-io/transport-node.
 * @throws TypeError naming the option that is wrong
 */
export function nats(options: NatsDriverOptions): Driver {
  validateOptions("nats", options, OPTION_RULES, { required: ["bucket"], secret: ["password", "token"] });
  return createDocumentDriver(natsStore(options), options);
}
