/** The process of a store that torture starts, kills, stops and starts again. */

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
      else await process.start();
      isStruck = false;
    };
  };
}
