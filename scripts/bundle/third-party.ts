// The licenses of the libraries whose code is in the files of the package: each of them asks for its notice in copies.

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Libraries whose packages have no license file, and one of the same authors with the same license that has it. */
const SAME_LICENSE: Readonly<Record<string, string>> = { "@hono/zod-openapi": "hono", "@hono/zod-validator": "hono" };

const HEAD = "Parts of these libraries are included in the files of this folder.\n";

/** @param modules the paths of all modules whose code is in the package */
export function renderThirdPartyLicenses(modules: readonly string[]): string {
  const names = new Set(
    modules.flatMap((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\/(?!.*node_modules\/)/.exec(path)?.[1] ?? []),
  );
  const texts = [...names].sort().map((name) => {
    const folder = join("node_modules", SAME_LICENSE[name] ?? name);
    const file = readdirSync(folder).find((entry) => /^licen[sc]e/i.test(entry));
    if (file === undefined) throw new Error(`${folder} has no license file, but its code is bundled`);
    return `${name}\n${"-".repeat(name.length)}\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return [HEAD, ...texts].join("\n");
}
