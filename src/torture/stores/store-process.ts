/** The process of a store that torture starts, kills, stops and starts again. */

import { setTimeout as delay } from "node:timers/promises";
import type { DatabaseProcess } from "../processes/database-process.ts";
import type { StartedStore } from "./started-store.ts";

/** One fault at a time. */
export function injectInto(process: DatabaseProcess): StartedStore["inject"] {
  let isStruck = false;
  return async (fault) => {
    if (isStruck) return null;
    isStruck = true;
    if (fault === "pause") process.signal("SIGSTOP");
    else if (fault === "kill") await process.crash();
    else await process.stop();
    return async () => {
      if (fault === "pause") process.signal("SIGCONT");
      else await startAgain(process);
      isStruck = false;
    };
  };
}

const START_ATTEMPTS = 20;
const PAUSE_MS = 200;

/** A database that was killed may refuse to start until the last of its processes has ended. */
async function startAgain(process: DatabaseProcess): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await process.start();
      return;
    } catch (error) {
      if (attempt === START_ATTEMPTS) throw error;
      await delay(PAUSE_MS);
    }
  }
}
