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
        await writeFile(`${path}.new`, formatDocument(document));
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
    return parseDocument(await readFile(path, "utf8"));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return parseDocument(null);
  }
}

/** null: there is none yet. */
export function parseDocument(text: string | null): LockDocument {
  const { queues, tombstones } = JSON.parse(text ?? '{"queues":[],"tombstones":[]}');
  return { queues: new Map(queues), tombstones: new Map(tombstones) };
}

export function formatDocument({ queues, tombstones }: LockDocument): string {
  return JSON.stringify({ queues: [...queues], tombstones: [...tombstones] });
}
