/** What is asked of a server before the first claim goes there. */

import { FatalDriverError } from "../../errors.ts";
import type { Connection } from "./connection.ts";
import { explainError, isNoScriptError, isPermissionError, toOpenError } from "./errors.ts";
import { ALL_BUCKETS, LAYOUT_VERSION, toRoutingKey } from "./script-codec.ts";
import { CLAIM, RELEASE, RENEW, VERIFY } from "./scripts.ts";

export interface StoreNames {
  readonly namePrefix: string;
  readonly layoutKey: string;
  /** Of our own, any. */
  readonly routingKey: string;
}

export interface ServerRequirements {
  readonly connectTimeoutMs: number;
  readonly allowEviction: boolean;
  /** Are replicas waited for? */
  readonly waitsForReplicas: boolean;
}

/**
 * Connects, and sees that this server may keep our locks. `extraChecks`: what else is asked of it.
 * @throws FatalDriverError if it may not; Error if it was not reached
 */
export async function connectAndVerify(
  connection: Connection,
  names: StoreNames,
  requirements: ServerRequirements,
  extraChecks: () => Promise<void>,
): Promise<void> {
  try {
    if (requirements.waitsForReplicas && connection.hidesDisconnects) throw new FatalDriverError(REPLICAS_UNSUPPORTED);
    await connection.connectAndDo(requirements.connectTimeoutMs, async () => {
      await verifyServer(connection, names, requirements);
      await extraChecks();
    });
  } catch (error) {
    throw toOpenError(error, connection.address);
  }
}

async function verifyServer(
  connection: Connection,
  names: StoreNames,
  requirements: ServerRequirements,
): Promise<void> {
  await connection.ensureDatabase(names.routingKey);
  await checkPermissions(connection, names);
  // asks whether we may: for none it does not wait
  if (requirements.waitsForReplicas) await connection.send(["WAIT", "0", "1"], names.routingKey);
  if (!requirements.allowEviction) await checkEvictionPolicy(connection, names);
  // else the first call of each would bring its script along, which takes a second trip
  await Promise.all([
    checkEvalsha(connection, names),
    ...[CLAIM, RENEW, RELEASE].map(({ text }) =>
      ignorePermissionError(connection.send(["SCRIPT", "LOAD", text], names.routingKey)),
    ),
  ]);
  await connection.ensureSubscribed(names.routingKey);
}

const REPLICAS_UNSUPPORTED =
  "redis: option replicas needs ioredis, iovalkey or redis (node-redis): valkey-glide does not tell whose writes replicas have";

/** No script has it. */
const UNKNOWN_SHA = "0".repeat(40);

async function checkPermissions(
  connection: Connection,
  { namePrefix, layoutKey, routingKey }: StoreNames,
): Promise<void> {
  const command = [
    "EVAL",
    VERIFY.text,
    "1",
    routingKey,
    LAYOUT_VERSION,
    connection.inboxChannel(routingKey),
    layoutKey,
    `${namePrefix}{00}:p:`,
  ];
  const reply = await connection.send(command, routingKey);
  if (String(reply) === "QUEUED") {
    throw new FatalDriverError("redis: the client is within a MULTI: give a client that nobody uses so");
  }
  const [layout, refusal] = reply as [unknown, unknown];
  if (String(refusal) !== "") throw explainRefusal(String(refusal), layoutKey);
  if (String(layout) !== LAYOUT_VERSION) {
    throw new FatalDriverError(
      `redis: ${layoutKey} says that layout ${String(layout).slice(0, 20)} is in use here, and this version knows ${LAYOUT_VERSION}`,
    );
  }
}

/** `refusal`: the command that we may not use, and what the server says to it. */
function explainRefusal(refusal: string, layoutKey: string): Error {
  const knownError = explainError(refusal, /^\w+/.exec(refusal)?.[0]);
  if (knownError !== null) return knownError;
  const explanation = /unknown/i.test(refusal)
    ? `this server is too old, or was told to refuse a command that is needed: ${refusal}`
    : refusal.includes("WRONGTYPE")
      ? `${layoutKey} is no key of ours: use another prefix`
      : `it refuses a command that is needed: ${refusal}`;
  return new FatalDriverError(`redis: ${explanation}`);
}

/** Scripts are run by their digests, which is a right of its own. */
async function checkEvalsha(connection: Connection, { routingKey }: StoreNames): Promise<void> {
  await connection.send(["EVALSHA", UNKNOWN_SHA, "1", routingKey], routingKey).catch((error: unknown) => {
    if (!isNoScriptError(error)) throw error;
  });
}

/** By a script: a client library sends a command that names no key to any node. */
const INFO_MEMORY_SCRIPT = "return redis.call('INFO', 'memory')";

async function checkEvictionPolicy(connection: Connection, { namePrefix }: StoreNames): Promise<void> {
  const routingKeys = connection.onePerMaster(ALL_BUCKETS.map((bucket) => toRoutingKey(namePrefix, bucket)));
  const infos = await Promise.all(
    routingKeys.map((routingKey) =>
      ignorePermissionError(connection.send(["EVAL", INFO_MEMORY_SCRIPT, "1", routingKey], routingKey)),
    ),
  );
  const policies = infos.map((info) => /maxmemory_policy:(\S+)/.exec(String(info))?.[1] ?? "noeviction");
  const policy = policies.find((candidate) => candidate !== "noeviction");
  if (policy === undefined) return;
  throw new FatalDriverError(
    `redis: maxmemory-policy is ${policy}, so it may throw locks away when memory is full: set noeviction, or allow it (option allowEviction)`,
  );
}

/** What a user may lack the right to, without harm. */
async function ignorePermissionError(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (isPermissionError(error)) return null;
    throw error;
  }
}
