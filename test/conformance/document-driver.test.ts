import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
// as an external driver author does: from the package, not its sources
import { conformance } from "holdfast/conformance";
import { describe, test } from "vitest";
import { documentDriver } from "../../examples/driver/document-driver.ts";
import { fileDocument } from "../../examples/driver/file-document.ts";

conformance({ describe, test }, "document", {
  async open() {
    const folder = await mkdtemp(join(tmpdir(), "holdfast-document-"));
    const store = fileDocument(join(folder, "locks.json"));
    return {
      driver: () => documentDriver(store),
      async close() {
        await store.change(() => undefined); // a call without an awaited answer may still be writing
        await rm(folder, { recursive: true });
      },
    };
  },
  traits: { manyKeys: false },
  keys: 50,
  random: { seeds: 1 },
  timeScale: 0.5,
});
