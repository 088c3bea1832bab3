/** The driver of a url: sqlite:PATH?prefix=NAME&guardDataLoss=30s. */

import { resolve } from "node:path";
import type { Driver } from "../../../spi/driver.ts";
import { describeValue } from "../../../util/duration.ts";
import { requireValid } from "../../../util/validate.ts";
import type { GuardDataLossOptions } from "../../data-loss-guard.ts";
import { parseGuardDataLoss } from "../../data-loss-guard.ts";
import { prefixRule } from "../schema.ts";
import { sqlite } from "./driver.ts";
import type { SqliteOptions } from "./options.ts";
import { validatePath } from "./options.ts";

/** The file and the prefix that a url names. */
export interface SqliteUrl {
  /** Absolute: a program that changes its folder keeps its locks. */
  readonly path: string;
  readonly prefix?: string;
  readonly guardDataLoss?: true | GuardDataLossOptions;
}

/** @throws TypeError as parseSqliteUrl() */
export function sqliteFromUrl(url: string, options: Pick<SqliteOptions, "connectTimeout" | "label" | "warn">): Driver {
  const { path, ...parameters } = parseSqliteUrl(url);
  return sqlite(path, { ...options, ...parameters });
}

/** @throws TypeError if the url names no file, or has an unknown parameter */
export function parseSqliteUrl(url: string): SqliteUrl {
  const [, slashes = "", encodedPath = "", query = ""] = /^sqlite:(\/*)([^?]*)\??(.*)$/s.exec(url) ?? [];
  const hasHost = slashes.length === 2;
  if (encodedPath === "" || hasHost || url.includes("#")) {
    throw new TypeError(
      `url must have the path of a file: sqlite:./locks.db or sqlite:/var/lib/locks.db, with %23 for #, not ${describeValue(url)}`,
    );
  }
  const parameters = new URLSearchParams(query);
  for (const name of parameters.keys()) {
    if (name !== "prefix" && name !== "guardDataLoss")
      throw new TypeError(`url has no parameter ${describeValue(name)} for sqlite: (it has prefix, guardDataLoss)`);
  }
  const prefix = parameters.get("prefix");
  if (prefix !== null) requireValid(prefix, "prefix", prefixRule);
  const guardDataLoss = parameters.get("guardDataLoss");
  const path = `${slashes === "" ? "" : "/"}${decodePath(encodedPath)}`;
  validatePath(path);
  return {
    path: resolve(path),
    ...(prefix !== null && { prefix }),
    ...(guardDataLoss !== null && { guardDataLoss: parseGuardDataLoss(guardDataLoss) }),
  };
}

function decodePath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch (cause) {
    throw new TypeError("url must have a valid percent-encoding", { cause });
  }
}
