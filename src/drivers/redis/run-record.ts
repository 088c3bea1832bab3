/** The run record of guardDataLoss, which lua/lib/grace.lua describes. */

import { StoreRefusedError } from "../../errors.ts";
import { ALL_BUCKETS, toRoutingKey, toRunRecordKey } from "./key-names.ts";
import GRACE from "./lua/grace.lua";
import type { RunScript } from "./script-codec.ts";

/**
 * A script argument: the longest ttl and the key of the run record; "": guardDataLoss is off (`maxTtlMs` is null). A
 * single server has one record for all buckets.
 */
export function encodeRunRecord(
  namePrefix: string,
  maxTtlMs: number | null,
  routingKey: string,
  isCluster: boolean,
): string {
  if (maxTtlMs === null) return "";
  return `${maxTtlMs} ${toRunRecordKey(isCluster ? routingKey : toRoutingKey(namePrefix, "00"))}`;
}

/**
 * Checks for a loss of data; the first use of a prefix counts as one, too. Returns what is left of a grace period in
 * milliseconds.
 * @throws StoreRefusedError if the user lacks permission for INFO
 */
export async function checkRunRecords(
  namePrefix: string,
  runScript: RunScript,
  scriptHeader: (routingKey: string) => readonly string[],
  isCluster: boolean,
): Promise<number> {
  const routingKeys = (isCluster ? ALL_BUCKETS : ["00"]).map((bucket) => toRoutingKey(namePrefix, bucket));
  try {
    const replies = await Promise.all(
      routingKeys.map((routingKey) => runScript(GRACE, routingKey, scriptHeader(routingKey))),
    );
    return Math.max(...replies.map((reply) => Number((reply as unknown[])[0]) - Number((reply as unknown[])[1])));
  } catch (error) {
    if (!/\bACL\b|NOPERM|can't run this command/i.test(String(error))) throw error;
    throw new StoreRefusedError("redis: guardDataLoss needs the right to INFO (+info)", { cause: error });
  }
}
