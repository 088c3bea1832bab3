/** Reads the files that an option or a variable names: certificates, keys, credentials. */

import { readFileSync } from "node:fs";
import { StoreRefusedError } from "../errors.ts";

/**
 * Reads a text file that a user has named.
 * @param namedBy what names the file, for the message: "url: ca", "HOLDFAST_CREDENTIAL_FILE"
 * @throws StoreRefusedError if it cannot be read
 */
export function readNamedFile(path: string, namedBy: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new StoreRefusedError(`${namedBy} names ${path}, which cannot be read (${code})`, { cause });
  }
}
