/**
 * Credentials and the file of accounts. A credential is hf1_ and 260 random bits in base32: the beginning is for people
 * and for programs that look for secrets where none should be.
 */

import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { durationMs } from "../duration.ts";
import { newId } from "../ids.ts";
import type { Account, Right, Rule } from "./access.ts";
import { hashOf, RIGHTS } from "./access.ts";
import type { JsonError } from "./http/json.ts";
import { parseStrictly } from "./http/json.ts";

/** The form of the file. */
const VERSION = 1;
const CREDENTIAL = /^hf1_[a-z2-7]{52}$/;
const HASH = /^[0-9a-f]{64}$/;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$/;
/** One that is in use, and one that takes its place. */
const MOST_HASHES = 2;

/** Makes a credential; nobody can tell it from its hash. */
export function newCredential(): { readonly credential: string; readonly hash: string } {
  const credential = `hf1_${newId()}${newId()}`;
  return { credential, hash: hashOf(credential) };
}

/**
 * The accounts of a file; or of its text, if what is given begins with a brace.
 * @throws Error with one line for everything that is wrong, each with its place
 */
export function readAccounts(source: string): readonly Account[] {
  const isText = source.trimStart().startsWith("{");
  return accountsOf(isText ? source : readFile(source), isText ? "credentials" : source);
}

/** @throws Error as readAccounts(); `where` is named in it */
export function accountsOf(text: string, where: string): readonly Account[] {
  const faults: string[] = [];
  const accounts = new Reader(faults).file(parsed(text, where));
  if (faults.length > 0) throw new Error(faults.map((fault) => `${where}: ${fault}`).join("\n"));
  return accounts;
}

/** Who else may read it could try hashes, which is hopeless; who may write it gives himself rights. */
function readFile(path: string): string {
  let descriptor: number;
  try {
    descriptor = openSync(path, constants.O_RDONLY);
  } catch (error) {
    throw new Error(`${path} cannot be read (${(error as NodeJS.ErrnoException).code})`, { cause: error });
  }
  try {
    const { uid, mode, size } = fstatSync(descriptor);
    const user = process.getuid?.();
    const found = (mode & 0o777).toString(8).padStart(3, "0");
    if (user !== undefined && uid !== user && uid !== 0)
      throw new Error(`${path} belongs to another user than this one or root`);
    if (user !== undefined && (mode & 0o027) !== 0) {
      throw new Error(`${path} is open to others (mode ${found}): chmod 600 it, or 640 for a group that may read it`);
    }
    if (size > 16_777_216) throw new Error(`${path} is longer than 16 MiB`);
    return readFileSync(descriptor, "utf8");
  } finally {
    closeSync(descriptor);
  }
}

function parsed(text: string, where: string): unknown {
  try {
    return parseStrictly(text);
  } catch (error) {
    const { field, message } = error as JsonError;
    if (field === null) throw new Error(`${where}: this is not JSON`);
    // what stands in a wrong place may be a credential
    throw new Error(`${where}: ${field.includes("hf1_") ? "a member" : field} ${message}`);
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** Looks through the whole file; no fault hides another. */
class Reader {
  readonly #faults: string[];
  readonly #names = new Set<string>();
  readonly #hashes = new Set<string>();

  constructor(faults: string[]) {
    this.#faults = faults;
  }

  file(raw: unknown): Account[] {
    const file = this.#fields(raw, "the file", ["version", "accounts"]);
    if (file === null) return [];
    if (file.version !== VERSION) this.#fault("version", `must be ${VERSION}: this server reads no other`);
    return this.#list(file.accounts, "accounts", "would let nobody in").map((one, at) =>
      this.#account(one, `accounts[${at}]`),
    );
  }

  #account(raw: unknown, at: string): Account {
    const { name, hashes, rules } = this.#fields(raw, at, ["name", "hashes", "rules"]) ?? {};
    if (typeof name !== "string" || !NAME.test(name)) {
      this.#fault(`${at}.name`, "must be 1 to 64 letters, digits and . _ @ - and begin with a letter or digit");
    } else if (this.#names.has(name)) this.#fault(`${at}.name`, "stands in another account, too");
    else this.#names.add(name);
    const listed = this.#list(hashes, `${at}.hashes`, "would let nobody in");
    if (listed.length > MOST_HASHES) {
      this.#fault(`${at}.hashes`, `may have ${MOST_HASHES}: the one in use and the one that takes its place`);
    }
    return {
      name: String(name),
      hashes: listed.map((hash, nth) => this.#hash(hash, `${at}.hashes[${nth}]`)),
      rules: this.#list(rules, `${at}.rules`, "would allow nothing").map((rule, nth) =>
        this.#rule(rule, `${at}.rules[${nth}]`),
      ),
    };
  }

  #hash(raw: unknown, at: string): string {
    if (typeof raw !== "string" || !HASH.test(raw)) {
      const isSecret = typeof raw === "string" && CREDENTIAL.test(raw);
      this.#fault(
        at,
        isSecret
          ? "is a credential itself: its hash belongs here, and it must be replaced now"
          : "must be a SHA-256: 64 of 0-9 and a-f",
      );
    } else if (this.#hashes.has(raw)) this.#fault(at, "stands in this file twice");
    else this.#hashes.add(raw);
    return String(raw);
  }

  #rule(raw: unknown, at: string): Rule {
    const { prefix, key, rights, maxHold } = this.#fields(raw, at, ["prefix", "key", "rights", "maxHold"]) ?? {};
    if ((prefix === undefined) === (key === undefined)) this.#fault(at, "must have either a prefix or a key");
    if (prefix !== undefined) this.#prefix(prefix, `${at}.prefix`);
    if (key !== undefined && (typeof key !== "string" || key === "")) this.#fault(`${at}.key`, "must be a key");
    const most = maxHold === undefined ? undefined : this.#duration(maxHold, `${at}.maxHold`);
    return {
      prefix: String(prefix ?? key),
      whole: prefix === undefined,
      rights: this.#rights(rights, `${at}.rights`),
      ...(most !== undefined && { maxHoldMs: most }),
    };
  }

  /** "team-a" would reach "team-ab": where a name ends must stand in the prefix. */
  #prefix(raw: unknown, at: string): void {
    if (typeof raw !== "string") this.#fault(at, 'must be a string; "" is every key');
    else if (/[\p{L}\p{N}]$/u.test(raw)) {
      this.#fault(
        at,
        'must end with a separator, such as "/" or ":", or it would reach longer names, too; "key" names one whole key',
      );
    }
  }

  #rights(raw: unknown, at: string): Right[] {
    const rights = this.#list(raw, at, "would allow nothing");
    for (const [nth, right] of rights.entries()) {
      if (!RIGHTS.includes(right as Right)) this.#fault(`${at}[${nth}]`, `must be one of ${RIGHTS.join(", ")}`);
    }
    return rights as Right[];
  }

  #duration(raw: unknown, at: string): number | undefined {
    try {
      const ms = durationMs(raw, "it");
      if (ms > 0) return ms;
    } catch {
      // said below, without what stands there
    }
    this.#fault(at, 'must be a duration above 0, such as "10m" or 600000 (milliseconds)');
    return undefined;
  }

  #list(raw: unknown, at: string, empty: string): readonly unknown[] {
    if (Array.isArray(raw) && raw.length > 0) return raw;
    this.#fault(at, Array.isArray(raw) ? `must not be empty: it ${empty}` : "must be an array");
    return [];
  }

  /** A word that is not known may be a known one mistyped. */
  #fields(raw: unknown, at: string, known: readonly string[]): Fields | null {
    if (typeof raw !== "object" || raw === null || Array.isArray(raw)) {
      this.#fault(at, "must be an object");
      return null;
    }
    for (const name of Object.keys(raw)) {
      if (!known.includes(name)) this.#fault(at, `has a field that is not known; known are ${known.join(", ")}`);
    }
    return raw as Fields;
  }

  #fault(at: string, message: string): void {
    this.#faults.push(`${at} ${message}`);
  }
}
