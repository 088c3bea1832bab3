/** The driver of the url "memory:", and its warning where other processes or threads of the program are likely. */

import { isMainThread } from "node:worker_threads";
import type { Driver } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";
import { memory } from "./memory.ts";
import { resolveWarn } from "./warnings.ts";

/** Runners of tests run these in children, where locks in memory are right. */
const TEST_RUNNER_VARIABLES = ["VITEST_WORKER_ID", "JEST_WORKER_ID"];

let hasWarned = false;

/** @throws TypeError unless the url is "memory:" */
export function memoryFromUrl(url: string): Driver {
  // a url with a name would suggest that other processes can share the store
  if (!/^memory:(\/\/)?$/.test(url))
    throw new TypeError(`url of a store in memory is "memory:", not ${describeValue(url)}`);
  warnInChild();
  return memory();
}

/** A process of cluster or fork() has a channel to its parent. */
function warnInChild(): void {
  const isChild = !isMainThread || process.channel != null;
  if (hasWarned || !isChild || TEST_RUNNER_VARIABLES.some((name) => process.env[name] !== undefined)) return;
  hasWarned = true;
  const where = isMainThread ? "a child process" : "a worker thread";
  resolveWarn()(
    `memory: locks of this client exclude no other process or thread, and this is ${where}; use a store that all of them share`,
  );
}
