/** The files of the pages: dist/ui of the package, as `npm run build` makes them. They are read when they are first requested. */

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** A file as it is sent. */
export interface PageFile {
  readonly body: Uint8Array<ArrayBuffer>;
  readonly type: string;
}

/** The page for every path below /ui that is neither a file nor a request for data. */
export const PAGE = "index.html";

const TYPES: Readonly<Record<string, string>> = {
  html: "text/html; charset=utf-8",
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
};

let files: ReadonlyMap<string, PageFile> | null = null;

/** The file of that name; undefined: there is none. @throws Error if the package has no pages */
export function findPageFile(name: string): PageFile | undefined {
  files ??= readPageFiles();
  return files.get(name);
}

function readPageFiles(): ReadonlyMap<string, PageFile> {
  const folder = join(findPackageFolder(), "dist/ui");
  return new Map(
    readdirSync(folder).flatMap((name) => {
      const type = TYPES[name.replace(/^.*\./, "")];
      return type === undefined ? [] : [[name, { body: new Uint8Array(readFileSync(join(folder, name))), type }]];
    }),
  );
}

/** This file is in different folders of the package: in the sources, and in dist. */
function findPackageFolder(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!isPackageFolder(folder)) {
    const parent = dirname(folder);
    if (parent === folder) throw new Error("the files of the dashboard were not found: they are in the npm package");
    folder = parent;
  }
  return folder;
}

function isPackageFolder(folder: string): boolean {
  try {
    return (JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { name?: unknown }).name === "holdfast";
  } catch {
    return false;
  }
}
