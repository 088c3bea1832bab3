// A document in a JSON file of this process, for the driver beside it. Locks in it survive a restart of the process.

import { readFile, rename, writeFile } from "node:fs/promises";
import type { DocumentStore, LockDocument } from "./document-driver.ts";

/** One file, changed by one process at a time: changes run one after another, and each replaces the file whole. */
export function fileDocument(path: string): DocumentStore {
  let last: Promise<unknown> = Promise.resolve();
  return {
    change(work) {
      const changed = last.then(async () => {
        const document = await readDocument(path);
        // it does not step while the process lives, as Date.now() may
        const result = work(document, Math.floor(performance.timeOrigin + performance.now()));
        await writeFile(
          `${path}.new`,
          JSON.stringify({ queues: [...document.queues], tombstones: [...document.tombstones] }),
        );
        await rename(`${path}.new`, path);
        return result;
      });
      last = changed.catch(() => undefined); // who asked for this change is told; the next one starts afresh
      return changed;
    },
  };
}

async function readDocument(path: string): Promise<LockDocument> {
  try {
    const { queues, tombstones } = JSON.parse(await readFile(path, "utf8")) as Record<"queues" | "tombstones", never>;
    return { queues: new Map(queues), tombstones: new Map(tombstones) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return { queues: new Map(), tombstones: new Map() };
  }
}
