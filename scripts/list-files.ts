/** The files below a folder of the repository. */

import { readdirSync } from "node:fs";
import { join } from "node:path";

/** Paths that begin with the folder. Neither installed packages nor links: a link to the project itself would never come to an end. */
export function listFiles(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name).replaceAll("\\", "/");
    if (entry.isDirectory()) return entry.name === "node_modules" ? [] : listFiles(path);
    return entry.isFile() ? [path] : [];
  });
}
