/** What our server knows a client by: from an option, the environment, or a file. Never from a url. */

import { readFileSync } from "node:fs";
import { FatalDriverError } from "../errors.ts";

/** A credential, or how to get the one that is good now. */
export type Credential = string | (() => string);

const VARIABLE = "HOLDFAST_CREDENTIAL";
const FILE_VARIABLE = "HOLDFAST_CREDENTIAL_FILE";
/** Printable, without blanks: it is one word of a first line. */
const WORD = /^[\x21-\x7e]{1,512}$/;

/**
 * The credential to use; undefined: none.
 * @throws TypeError if it cannot be one; FatalDriverError if its file cannot be read
 */
export function credentialOf(option: unknown, env: NodeJS.ProcessEnv = process.env): Credential | undefined {
  if (typeof option === "function") return () => checked(option(), "what credential gives");
  if (option !== undefined) return checked(option, "credential");
  const [word, file] = [env[VARIABLE] ?? "", env[FILE_VARIABLE] ?? ""];
  if (word !== "" && file !== "") throw new TypeError(`${VARIABLE} and ${FILE_VARIABLE} are both set: unset one`);
  if (word !== "") return checked(word, VARIABLE);
  return file === "" ? undefined : fromFile(file);
}

/** Read now, and for each connection again: it may have been changed. */
function fromFile(path: string): Credential {
  const read = (): string => {
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw new FatalDriverError(`${FILE_VARIABLE} names ${path}, which cannot be read (${code})`, { cause });
    }
    return checked(text.trim(), `what stands in ${path}`);
  };
  let last = read();
  return () => {
    try {
      last = read();
    } catch (error) {
      // in the moment of its change: the last one may still be good
      if (!(error instanceof FatalDriverError || error instanceof TypeError)) throw error;
    }
    return last;
  };
}

/** The message never repeats it. */
function checked(value: unknown, name: string): string {
  if (typeof value === "string" && WORD.test(value)) return value;
  throw new TypeError(`${name} must be a credential: one printable word`);
}
