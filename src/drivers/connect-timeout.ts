/** The option `connectTimeout`, which all drivers that connect have. */

import type { Duration } from "../util/duration.ts";
import { parseDuration } from "../util/duration.ts";

/** How long open() tries to reach the store, in milliseconds. @param connectTimeout validated */
export function toConnectTimeoutMs(connectTimeout: Duration = 5_000): number {
  return parseDuration(connectTimeout, "connectTimeout");
}
