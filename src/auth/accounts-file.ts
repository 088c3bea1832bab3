/**
 * Credentials and the accounts file. A credential is hf1_ and 260 random bits in base32. The prefix is for people, and
 * for tools that scan for leaked secrets.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { parseDuration } from "../util/duration.ts";
import { randomId } from "../util/ids.ts";
import type { JsonError } from "../util/strict-json.ts";
import { parseStrictJson } from "../util/strict-json.ts";
import { systemErrorCode } from "../util/system-error.ts";
import type { Account, Right, Rule } from "./access-control.ts";
import { hashCredential, RIGHTS } from "./access-control.ts";

/** The version of the file format. */
const FILE_VERSION = 1;
const CREDENTIAL_PATTERN = /^hf1_[a-z2-7]{52}$/;
const HASH_PATTERN = /^[0-9a-f]{64}$/;
const NAME_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
/** The credential in use, and its replacement. */
const MAX_HASHES = 2;

/** Creates a credential; it cannot be derived from its hash. */
export function createCredential(): { readonly credential: string; readonly hash: string } {
  const credential = `hf1_${randomId()}${randomId()}`;
  return { credential, hash: hashCredential(credential) };
}

/**
 * Loads the accounts from a file, or from `source` itself if it begins with a brace.
 * @throws Error with one line for each problem and its place
 */
export function loadAccounts(source: string): readonly Account[] {
  const isText = source.trimStart().startsWith("{");
  return parseAccounts(isText ? source : readAccountsFile(source), isText ? "credentials" : source);
}

/** @throws Error as loadAccounts(), with `source` in each line */
export function parseAccounts(text: string, source: string): readonly Account[] {
  const problems: string[] = [];
  const accounts = new AccountsParser(problems).parse(parseJson(text, source));
  if (problems.length > 0) throw new Error(problems.map((problem) => `${source}: ${problem}`).join("\n"));
  return accounts;
}

/** Reading the file would allow attempts to invert hashes, which is hopeless; writing to it grants rights. */
function readAccountsFile(path: string): string {
  let descriptor: number;
  try {
    descriptor = openSync(path, constants.O_RDONLY);
  } catch (error) {
    throw new Error(`${path} cannot be read (${systemErrorCode(error)})`, { cause: error });
  }
  try {
    const { uid, mode, size } = fstatSync(descriptor);
    const user = process.getuid?.();
    const modeText = (mode & 0o777).toString(8).padStart(3, "0");
    if (user !== undefined && uid !== user && uid !== 0)
      throw new Error(`${path} belongs to a user other than this one and root`);
    if (user !== undefined && (mode & 0o027) !== 0) {
      throw new Error(
        `${path} is open to others (mode ${modeText}): chmod 600 it, or 640 for a group that may read it`,
      );
    }
    if (size > 16_777_216) throw new Error(`${path} is longer than 16 MiB`);
    return readFileSync(descriptor, "utf8");
  } finally {
    closeSync(descriptor);
  }
}

function parseJson(text: string, source: string): unknown {
  try {
    return parseStrictJson(text);
  } catch (error) {
    const { field, message } = error as JsonError;
    if (field === null) throw new Error(`${source}: not valid JSON`);
    // a value in the wrong place may be a credential
    throw new Error(`${source}: ${field.includes("hf1_") ? "a member" : field} ${message}`);
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** Parses the complete file, so that no problem hides another. */
class AccountsParser {
  readonly #problems: string[];
  readonly #names = new Set<string>();
  readonly #hashes = new Set<string>();

  constructor(problems: string[]) {
    this.#problems = problems;
  }

  parse(raw: unknown): Account[] {
    const file = this.#parseFields(raw, "the file", ["version", "accounts"]);
    if (file === null) return [];
    if (file.version !== FILE_VERSION)
      this.#report("version", `must be ${FILE_VERSION}: this server supports no other version`);
    return this.#parseList(file.accounts, "accounts", "would admit no client").map((account, index) =>
      this.#parseAccount(account, `accounts[${index}]`),
    );
  }

  #parseAccount(raw: unknown, path: string): Account {
    const { name, hashes, rules } = this.#parseFields(raw, path, ["name", "hashes", "rules"]) ?? {};
    if (typeof name !== "string" || !NAME_PATTERN.test(name)) {
      this.#report(`${path}.name`, "must be 1 to 64 letters, digits and . _ @ - and begin with a letter or digit");
    } else if (this.#names.has(name)) this.#report(`${path}.name`, "is used by another account, too");
    else this.#names.add(name);
    const rawHashes = this.#parseList(hashes, `${path}.hashes`, "would admit no client");
    if (rawHashes.length > MAX_HASHES) {
      this.#report(
        `${path}.hashes`,
        `may have at most ${MAX_HASHES} entries: the current credential and its replacement`,
      );
    }
    return {
      name: String(name),
      hashes: rawHashes.map((hash, index) => this.#parseHash(hash, `${path}.hashes[${index}]`)),
      rules: this.#parseList(rules, `${path}.rules`, "would allow nothing").map((rule, index) =>
        this.#parseRule(rule, `${path}.rules[${index}]`),
      ),
    };
  }

  #parseHash(raw: unknown, path: string): string {
    if (typeof raw !== "string" || !HASH_PATTERN.test(raw)) {
      const isSecret = typeof raw === "string" && CREDENTIAL_PATTERN.test(raw);
      this.#report(
        path,
        isSecret
          ? "is a credential itself, not its hash: store the hash here, and replace the credential now, since it has leaked"
          : "must be a SHA-256 hash: 64 characters of 0-9 and a-f",
      );
    } else if (this.#hashes.has(raw)) this.#report(path, "occurs twice in this file");
    else this.#hashes.add(raw);
    return String(raw);
  }

  #parseRule(raw: unknown, path: string): Rule {
    const { prefix, key, rights, maxHold } = this.#parseFields(raw, path, ["prefix", "key", "rights", "maxHold"]) ?? {};
    if ((prefix === undefined) === (key === undefined)) this.#report(path, "must have either a prefix or a key");
    if (prefix !== undefined) this.#checkPrefix(prefix, `${path}.prefix`);
    if (key !== undefined && (typeof key !== "string" || key === "")) this.#report(`${path}.key`, "must be a key");
    const maxHoldMs = maxHold === undefined ? undefined : this.#parseMaxHold(maxHold, `${path}.maxHold`);
    return {
      prefix: String(prefix ?? key),
      isExactKey: prefix === undefined,
      rights: this.#parseRights(rights, `${path}.rights`),
      ...(maxHoldMs !== undefined && { maxHoldMs }),
    };
  }

  /** "team-a" would match "team-ab", so a prefix must include the separator. */
  #checkPrefix(raw: unknown, path: string): void {
    if (typeof raw !== "string") this.#report(path, 'must be a string; "" is every key');
    else if (/[\p{L}\p{N}]$/u.test(raw)) {
      this.#report(
        path,
        'must end with a separator, such as "/" or ":", or it would match longer names, too; use "key" for a single key',
      );
    }
  }

  #parseRights(raw: unknown, path: string): Right[] {
    const rights = this.#parseList(raw, path, "would allow nothing");
    for (const [index, right] of rights.entries()) {
      if (!RIGHTS.includes(right as Right)) this.#report(`${path}[${index}]`, `must be one of ${RIGHTS.join(", ")}`);
    }
    return rights as Right[];
  }

  #parseMaxHold(raw: unknown, path: string): number | undefined {
    try {
      const ms = parseDuration(raw, "it");
      if (ms > 0) return ms;
    } catch {
      // reported below, without the value
    }
    this.#report(path, 'must be a duration above 0, such as "10m" or 600000 (milliseconds)');
    return undefined;
  }

  #parseList(raw: unknown, path: string, consequence: string): readonly unknown[] {
    if (Array.isArray(raw) && raw.length > 0) return raw;
    this.#report(path, Array.isArray(raw) ? `must not be empty: it ${consequence}` : "must be an array");
    return [];
  }

  /** An unknown field may be a misspelled known one. */
  #parseFields(raw: unknown, path: string, allowed: readonly string[]): Fields | null {
    if (typeof raw !== "object" || raw === null || Array.isArray(raw)) {
      this.#report(path, "must be an object");
      return null;
    }
    for (const name of Object.keys(raw)) {
      if (!allowed.includes(name)) this.#report(path, `has an unknown field; known fields: ${allowed.join(", ")}`);
    }
    return raw as Fields;
  }

  #report(path: string, message: string): void {
    this.#problems.push(`${path} ${message}`);
  }
}
