/** What our server knows a client by: from an option, the environment, or a file. Never from a url. */

import { readFileSync } from "node:fs";
import { FatalDriverError } from "../errors.ts";

/** A credential, or how to get the one that is good now. */
export type Credential = string | (() => string);

const CREDENTIAL_VARIABLE = "HOLDFAST_CREDENTIAL";
const CREDENTIAL_FILE_VARIABLE = "HOLDFAST_CREDENTIAL_FILE";
/** Printable, without blanks: it is one word of a first line. */
const CREDENTIAL_PATTERN = /^[\x21-\x7e]{1,512}$/;

/**
 * The credential to use; undefined: none.
 * @throws TypeError if it cannot be one; FatalDriverError if its file cannot be read
 */
export function resolveCredential(option: unknown, env: NodeJS.ProcessEnv = process.env): Credential | undefined {
  if (typeof option === "function") return () => validateCredential(option(), "what credential gives");
  if (option !== undefined) return validateCredential(option, "credential");
  const [value, file] = [env[CREDENTIAL_VARIABLE] ?? "", env[CREDENTIAL_FILE_VARIABLE] ?? ""];
  if (value !== "" && file !== "")
    throw new TypeError(`${CREDENTIAL_VARIABLE} and ${CREDENTIAL_FILE_VARIABLE} are both set: unset one`);
  if (value !== "") return validateCredential(value, CREDENTIAL_VARIABLE);
  return file === "" ? undefined : credentialFromFile(file);
}

/** Read now, and for each connection again: it may have been changed. */
function credentialFromFile(path: string): Credential {
  const read = (): string => {
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (cause) {
      const { code } = cause as NodeJS.ErrnoException;
      throw new FatalDriverError(`${CREDENTIAL_FILE_VARIABLE} names ${path}, which cannot be read (${code})`, {
        cause,
      });
    }
    return validateCredential(text.trim(), `what stands in ${path}`);
  };
  let lastRead = read();
  return () => {
    try {
      lastRead = read();
    } catch (error) {
      // in the moment of its change: the last one may still be good
      if (!(error instanceof FatalDriverError || error instanceof TypeError)) throw error;
    }
    return lastRead;
  };
}

/** The message never repeats it. */
function validateCredential(value: unknown, name: string): string {
  if (typeof value === "string" && CREDENTIAL_PATTERN.test(value)) return value;
  throw new TypeError(`${name} must be a credential: one printable word`);
}
