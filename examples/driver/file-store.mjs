// A store of one's own for the command line: locks in files of a local directory, beside this module.
// docs/write-a-driver.md shows this file as it stands.

import { randomUUID } from "node:crypto";
import { link, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

/** So many versions of a document stay, for readers that have listed them and not read them yet. */
const KEPT_VERSIONS = 10;

/** The version 7 of a document is the file NAME.7. @returns {import("holdfast/document").DocumentStore} */
export function fileStore(directory) {
  const pathOf = (name, version) => join(directory, `${name}.${version}`);

  async function listVersions(name) {
    const files = (await readdir(directory)).filter((file) => file.startsWith(`${name}.`));
    return files.map((file) => Number(file.slice(name.length + 1))).sort((a, b) => a - b);
  }

  return {
    name: "files",

    async open() {
      await mkdir(directory, { recursive: true });
    },

    async read(name) {
      const version = (await listVersions(name)).at(-1);
      return version === undefined ? null : { bytes: await readFile(pathOf(name, version)), version: String(version) };
    },

    async write(name, bytes, version) {
      const next = Number(version ?? 0) + 1;
      const complete = join(directory, `new-${randomUUID()}`);
      await writeFile(complete, bytes);
      try {
        await link(complete, pathOf(name, next)); // of all that try, one succeeds
      } catch (error) {
        if (error.code === "EEXIST") return "conflict";
        throw error;
      } finally {
        await rm(complete);
      }
      const versions = await listVersions(name);
      // others have written since, or did before, and have removed this version already: the driver reads which it was
      if (versions.at(-1) !== next) throw new Error(`${name} has a later version than ${next}`);
      for (const old of versions.slice(0, -KEPT_VERSIONS)) await rm(pathOf(name, old), { force: true });
      return { version: String(next) };
    },
  };
}

export default fileStore(join(import.meta.dirname, "locks"));
