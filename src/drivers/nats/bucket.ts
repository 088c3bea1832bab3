/** The settings of a bucket that matter to locks, and the errors of NATS that mean something to them. */

import { StoreRefusedError } from "../../errors.ts";
import type { Check } from "../../spi/driver.ts";
import { MAX_DOCUMENT_BYTES } from "../document/store.ts";
import type { OpenBucket } from "./connection.ts";

/** Of the stream in which NATS keeps a bucket. */
export interface BucketSettings {
  /** In nanoseconds; 0: none. */
  readonly max_age?: number;
  /** -1: none. */
  readonly max_bytes?: number;
  readonly max_msgs?: number;
  readonly max_msg_size?: number;
  readonly retention?: string;
  readonly storage?: string;
  readonly num_replicas?: number;
  readonly mirror?: object;
  readonly sealed?: boolean;
}

/** The settings; a text says why they could not be read: locks do not need the right to. */
export async function readSettings({ kv }: OpenBucket): Promise<BucketSettings | string> {
  try {
    return (await kv.status()).streamInfo.config;
  } catch (error) {
    if (isPermissionError(error)) return (error as Error).message;
    throw error;
  }
}

/** Why the bucket would lose locks; null: it would not. */
export function findUnsafeSetting(settings: BucketSettings): string | null {
  const { max_age = 0, max_bytes = -1, max_msgs = -1, max_msg_size = -1, retention, storage } = settings;
  if (max_age > 0) return "it has a ttl, after which it deletes keys";
  if (max_bytes > 0) return "it has a limit of its size (maxBytes), at which it deletes keys or takes none";
  if (max_msgs > 0) return "it has a limit of its number of keys, at which it deletes keys or takes none";
  if (max_msg_size >= 0 && max_msg_size < MAX_DOCUMENT_BYTES)
    return `its values may have ${max_msg_size} bytes, fewer than the ${MAX_DOCUMENT_BYTES} of a document`;
  if (retention !== undefined && retention !== "limits") return `it discards its history (retention: ${retention})`;
  if (storage === "memory") return "it is kept in memory, so a restart of its server would end all locks";
  if (settings.mirror !== undefined) return "it is a mirror of another one";
  return settings.sealed === true ? "it is sealed" : null;
}

export function checkReplicas(settings: BucketSettings | string): Check {
  const name = "replicas";
  if (typeof settings === "string") return { status: "unknown", name, message: `not permitted: ${settings}` };
  const { num_replicas: count = 1 } = settings;
  if (count > 1) return { status: "ok", name, message: `${count} servers keep the bucket` };
  return {
    status: "warn",
    name,
    message: "one server keeps the bucket",
    hint: "nothing is granted during its outage, and a power failure may lose its last writes: use 3 replicas, or sync_interval: always",
  };
}

/** An error of the library, as far as it is looked at. */
interface NatsError extends Error {
  readonly code?: number;
  readonly cause?: NatsError;
}

const WRONG_LAST_SEQUENCE: readonly (number | undefined)[] = [10_071, 10_164];
const STREAM_NOT_FOUND = 10_059;
const NOT_ENABLED: readonly (number | undefined)[] = [10_039, 10_076];

/** Does it say that the key has another revision? */
export function isConflict(error: unknown): boolean {
  return WRONG_LAST_SEQUENCE.includes((error as NatsError).code);
}

function isPermissionError(error: unknown): boolean {
  const { name, cause } = error as NatsError;
  return name === "PermissionViolationError" || cause?.name === "PermissionViolationError";
}

/** A StoreRefusedError for what a retry cannot mend; else the error itself. */
export function toStoreError(error: unknown, subject: string): unknown {
  const { name, code, message, cause } = error as NatsError;
  const refuse = (reason: string): StoreRefusedError =>
    new StoreRefusedError(`${subject} cannot be used: ${reason}`, { cause: error });
  if (code === STREAM_NOT_FOUND)
    return refuse("it does not exist. Create it, for example: nats kv add NAME --replicas 3");
  if (name === "AuthorizationError") return refuse("the server refused the user, password or token");
  if (NOT_ENABLED.includes(cause?.code)) return refuse("the server or account has no JetStream");
  return isPermissionError(error) ? refuse(message) : error;
}
