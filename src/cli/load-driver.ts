/**
 * The driver of --driver: a module of the user, whose default export is a driver, a store with a conditional write, or a
 * function that returns one of the two.
 */

import { statSync } from "node:fs";
import { createRequire } from "node:module";
import { isAbsolute, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { DocumentStore } from "../drivers/document/index.ts";
import type { Driver } from "../spi/driver.ts";
import { describeValue } from "../util/duration.ts";
import { CommandError, toCallError, toFileLimitError } from "./errors.ts";

/** What a driver must have; the other functions of the contract are optional. */
const DRIVER_FUNCTIONS = ["open", "claim", "renew", "release", "list", "close"] as const;
const STORE_FUNCTIONS = ["read", "write"] as const;

/** By the text of --driver: to try again means to open the same driver again, so that no connection of the first try is left. */
const drivers = new Map<string, Promise<Driver>>();

/**
 * Loads the module, and gives its driver, which is not open.
 * @throws CommandError usage if the module has none; unreachable or refused if its function cannot reach the store
 */
export function loadDriver(text: string): Promise<Driver> {
  const loaded = drivers.get(text) ?? createDriver(text);
  drivers.set(text, loaded);
  loaded.catch(() => drivers.delete(text));
  return loaded;
}

/** The absolute path of the module, for a process with another working directory. @throws CommandError usage */
export function resolveModulePath(text: string): string {
  const path = resolve(text);
  const kind = statSync(path, { throwIfNoEntry: false });
  if (kind?.isFile() === true) return path;
  if (text === "" || text.startsWith(".") || isAbsolute(text)) {
    const problem = text === "" ? "must not be empty" : kind === undefined ? "does not exist" : "is not a file";
    throw new CommandError("usage", `${text === "" ? "the name of the module" : text} ${problem}`);
  }
  return resolvePackage(text);
}

/** As require() finds it. Node has no stable function that resolves as import() would in the current directory. */
function resolvePackage(name: string): string {
  try {
    const path = createRequire(join(process.cwd(), "package.json")).resolve(name);
    // a module of Node, such as "fs", has no path
    if (isAbsolute(path)) return path;
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "ERR_PACKAGE_PATH_NOT_EXPORTED")
      throw new CommandError("usage", `${name} exports nothing that require() finds: name its file instead`, { cause });
    if (code !== "MODULE_NOT_FOUND")
      throw new CommandError("usage", `${name} cannot be loaded: ${firstLine(cause)}`, { cause });
  }
  throw new CommandError("usage", `${name} is neither a file nor a package that is found from ${process.cwd()}`);
}

async function createDriver(text: string): Promise<Driver> {
  const exported = await importDefault(text);
  if (typeof exported !== "function") return toDriver(exported, text, "its default export");
  let made: unknown;
  try {
    made = await exported();
  } catch (cause) {
    // a store that the function could not reach may be there later; a bug in it stays
    const error = toCallError(cause, `the driver ${text}`);
    if (error.kind === "unreachable" || error.kind === "refused") throw error;
    throw new CommandError("usage", `${text}: the function that it exports failed: ${firstLine(cause)}`, { cause });
  }
  return toDriver(made, text, "what its default export returns");
}

async function importDefault(text: string): Promise<unknown> {
  const { href } = pathToFileURL(resolveModulePath(text));
  let names: Readonly<Record<string, unknown>>;
  try {
    names = await import(href);
  } catch (cause) {
    throw (
      toFileLimitError(cause) ?? new CommandError("usage", `${text} cannot be loaded: ${firstLine(cause)}`, { cause })
    );
  }
  if (!("default" in names)) {
    const others = Object.keys(names).join(", ");
    throw new CommandError("usage", `${text} has no default export${others === "" ? "" : `, only ${others}`}`);
  }
  const { default: exported } = names;
  // an ES module that a compiler has made CommonJS of
  const { __esModule: isCompiled, default: inner } = Object(exported) as { __esModule?: unknown; default?: unknown };
  return isCompiled === true ? inner : exported;
}

/** @throws CommandError usage if the value is neither a driver nor a store */
async function toDriver(value: unknown, text: string, subject: string): Promise<Driver> {
  const has = (name: string): boolean => typeof (Object(value) as Record<string, unknown>)[name] === "function";
  const fail = (found: string): CommandError => {
    const expected = "a driver, a store with read() and write(), or a function that returns one of them";
    return new CommandError("usage", `${text}: ${subject} must be ${expected}, not ${found}`);
  };
  const isDriver = has("claim");
  const isStore = !isDriver && STORE_FUNCTIONS.some(has);
  if (!isDriver && !isStore) throw fail(describeValue(value));
  const missing = (isDriver ? DRIVER_FUNCTIONS : STORE_FUNCTIONS)
    .filter((name) => !has(name))
    .map((name) => `${name}()`);
  if (typeof (value as Driver | DocumentStore).name !== "string") missing.push("a name");
  if (missing.length > 0) throw fail(`a ${isDriver ? "driver" : "store"} without ${missing.join(", ")}`);
  if (isDriver) return value as Driver;
  const { documentDriver } = await import("../drivers/document/index.ts");
  return documentDriver(value as DocumentStore);
}

/** The first line of what was thrown: Node adds further ones with the modules that required it. */
function firstLine(thrown: unknown): string {
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return message.split("\n", 1)[0] as string;
}
