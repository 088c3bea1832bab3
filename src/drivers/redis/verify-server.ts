/** Checks a server before the first claim is sent to it. */

import { StoreRefusedError } from "../../errors.ts";
import { toConnectTimeoutMs } from "../connect-timeout.ts";
import type { Connection } from "./connection.ts";
import { explainError, isNoScriptError, isReplicaError, isUnavailableCommand, toOpenError } from "./errors.ts";
import { ALL_BUCKETS, LAYOUT_VERSION, toLayoutKey, toNamePrefix, toRoutingKey, toTrialPrefix } from "./key-names.ts";
import RENEW from "./lua/renew.lua";
import TURN from "./lua/turn.lua";
import VERIFY from "./lua/verify.lua";
import type { RedisOptions } from "./options.ts";

/**
 * Connects and verifies that this server can keep locks safely. `extraChecks` run last, on the same connection.
 * @throws StoreRefusedError if it cannot; Error if it was not reached
 */
export async function connectAndVerify(
  connection: Connection,
  options: RedisOptions,
  extraChecks: () => Promise<void>,
): Promise<void> {
  try {
    await connection.connectAndDo(toConnectTimeoutMs(options.connectTimeout), async () => {
      await verifyServer(connection, options);
      await extraChecks();
    });
  } catch (error) {
    if (isReplicaError(error)) await sendRefusedWrite(connection, options);
    throw toOpenError(error, connection.address, connection.isCluster);
  }
}

/**
 * A client of the user leaves a replica only when a command of its own is refused (the option reconnectOnError of
 * ioredis), and what the checks have found is an answer. So the next open() reaches the master. The key is random, and
 * does not exist.
 */
async function sendRefusedWrite(connection: Connection, options: RedisOptions): Promise<void> {
  const routingKey = toRoutingKey(toNamePrefix(options), "00");
  await connection.send(["DEL", connection.inboxChannel(routingKey)], routingKey).catch(() => undefined);
}

async function verifyServer(connection: Connection, options: RedisOptions): Promise<void> {
  // any key with the prefix routes the checks of a single server
  const routingKey = toRoutingKey(toNamePrefix(options), "00");
  await connection.ensureDatabase(routingKey);
  await checkPermissions(connection, routingKey, options);
  // checks the permission: WAIT for 0 replicas returns at once
  if (options.replicas !== undefined) await connection.send(["WAIT", "0", "1"], routingKey);
  await checkSettings(connection, options);
  // without SCRIPT LOAD the first call of each script takes a second round trip, to send its text
  await Promise.all([
    checkEvalsha(connection, routingKey),
    ...[TURN, RENEW].map(({ text }) => ignoreUnavailableCommand(connection.send(["SCRIPT", "LOAD", text], routingKey))),
  ]);
  await connection.ensureSubscribed(routingKey);
}

/** A digest that no script has. */
const UNKNOWN_SHA = "0".repeat(40);

async function checkPermissions(connection: Connection, routingKey: string, options: RedisOptions): Promise<void> {
  const layoutKey = toLayoutKey(options);
  const command = [
    "EVAL",
    VERIFY.text,
    "1",
    routingKey,
    LAYOUT_VERSION,
    connection.inboxChannel(routingKey),
    layoutKey,
    toTrialPrefix(routingKey),
  ];
  const reply = await connection.send(command, routingKey);
  if (String(reply) === "QUEUED") {
    throw new StoreRefusedError("redis: the client is inside a MULTI transaction: pass a dedicated client");
  }
  const [layout, refusal] = reply as [unknown, unknown];
  if (String(refusal) !== "") throw explainRefusal(String(refusal), layoutKey);
  if (String(layout) !== LAYOUT_VERSION) {
    throw new StoreRefusedError(
      `redis: ${layoutKey} uses layout ${String(layout).slice(0, 20)}, but this version supports layout ${LAYOUT_VERSION}`,
    );
  }
}

/** `refusal`: the refused command and the server's error. */
function explainRefusal(refusal: string, layoutKey: string): Error {
  const knownError = explainError(refusal, /^\w+/.exec(refusal)?.[0]);
  if (knownError !== null) return knownError;
  if (refusal.includes("WRONGTYPE")) {
    return new StoreRefusedError(`redis: ${layoutKey} was not written by Holdfast: use another prefix`);
  }
  return new Error(`redis: the server refused a required command: ${refusal}`); // its disk or its replicas: it may pass
}

/** Scripts run by digest, and EVALSHA needs its own permission. */
async function checkEvalsha(connection: Connection, routingKey: string): Promise<void> {
  await connection.send(["EVALSHA", UNKNOWN_SHA, "1", routingKey], routingKey).catch((error: unknown) => {
    if (!isNoScriptError(error)) throw error;
  });
}

/** In a script: in a Cluster, client libraries send a command without a key to an arbitrary node. */
const INFO_SCRIPT = "return redis.call('INFO', 'memory') .. redis.call('INFO', 'replication')";

async function checkSettings(connection: Connection, options: RedisOptions): Promise<void> {
  const namePrefix = toNamePrefix(options);
  const routingKeys = connection.onePerMaster(ALL_BUCKETS.map((bucket) => toRoutingKey(namePrefix, bucket)));
  const infos = await Promise.all(
    routingKeys.map((routingKey) =>
      ignoreUnavailableCommand(connection.send(["EVAL", INFO_SCRIPT, "1", routingKey], routingKey)),
    ),
  );
  // with replica-read-only no it accepts the writes of claims, and its master knows nothing of them
  if (infos.some((info) => /role:slave/.test(String(info)))) throw explainRefusal("READONLY", toLayoutKey(options));
  if (options.allowEviction === true) return;
  const policies = infos.map((info) => /maxmemory_policy:(\S+)/.exec(String(info))?.[1] ?? "noeviction");
  const policy = policies.find((candidate) => candidate !== "noeviction");
  if (policy === undefined) return;
  throw new StoreRefusedError(
    `redis: maxmemory-policy is ${policy}, so the server may evict held locks when memory is full: set noeviction, or allow it (option allowEviction)`,
  );
}

/** For commands that a user may lack without harm: null then. */
async function ignoreUnavailableCommand(call: Promise<unknown>): Promise<unknown> {
  try {
    return await call;
  } catch (error) {
    if (isUnavailableCommand(error)) return null;
    throw error;
  }
}
